//! Super experts, which a model does not survive the loss of (arXiv 2507.23279).

use crate::usage::Usage;
use std::collections::{BTreeMap, BTreeSet};

/// The share of all experts that the greatest activation of a super expert exceeds.
const PERCENTILE: f64 = 0.995;
/// The share of the greatest activation of all that it exceeds.
const OF_GREATEST: f64 = 0.1;

/// The experts whose greatest activation is above the 99.5th percentile of all experts and above a tenth of the greatest of
/// all, in the first three quarters of the layers; by layer. `None` when the usage does not tell activations.
pub fn super_experts(usage: &Usage) -> Option<BTreeMap<u32, BTreeSet<u32>>> {
    let layers: Option<Vec<(u32, &[f64])>> = usage
        .layers
        .iter()
        .filter(|layer| layer.total.n_tokens > 0)
        .map(|layer| Some((layer.layer, layer.total.activation.as_ref()?.max.as_slice())))
        .collect();
    let layers = layers?;
    let mut all: Vec<f64> = layers.iter().flat_map(|(_, max)| max.iter().copied()).collect();
    all.sort_by(f64::total_cmp);
    let &greatest = all.last()?;
    let percentile = all[(PERCENTILE * (all.len() - 1) as f64).floor() as usize];
    let early = f64::from(usage.model.n_layer) * 0.75;
    let found = layers.iter().filter(|(layer, _)| f64::from(*layer) < early).map(|(layer, max)| {
        let ids = (0u32..).zip(*max).filter(|(_, max)| **max > percentile && **max > OF_GREATEST * greatest);
        (*layer, ids.map(|(id, _)| id).collect::<BTreeSet<u32>>())
    });
    Some(found.filter(|(_, ids)| !ids.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::ActivationSums;
    use crate::usage::test_usage::usage;

    #[test]
    fn super_experts_are_far_above_the_rest_and_not_in_the_last_layers() {
        let counts: Vec<u64> = vec![10; 256];
        let columns: &[(&[u64], Option<&[f64]>)] = &[(&counts, None)];
        let mut usage =
            usage(2, &[("text", 1280)], &[(0, columns), (1, columns), (2, columns), (3, columns)]);
        assert_eq!(super_experts(&usage), None);
        for layer in &mut usage.layers {
            let mut activation = ActivationSums::zero(256);
            activation.max = (0..256).map(|id| 1.0 + f64::from(id) / 1000.0).collect();
            activation.max[17] = if layer.layer == 1 { 400.0 } else { 1.5 };
            activation.max[30] = if layer.layer == 3 { 500.0 } else { 1.0 };
            layer.total.activation = Some(activation);
        }
        let found = super_experts(&usage).unwrap();
        assert_eq!(found, BTreeMap::from([(1, BTreeSet::from([17]))]));
    }
}
