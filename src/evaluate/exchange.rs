//! Exchanges of experts next to the cut.

use crate::moe::{ExpertLayer, Experts, KeptExperts, LayerKind};
use crate::score::LayerScores;
use std::collections::{BTreeMap, BTreeSet};

/// Two experts of a layer, one of which leaves for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    /// The layer.
    pub layer: u32,
    /// The expert that leaves.
    pub leaves: u32,
    /// The expert that stays in its place.
    pub enters: u32,
}

/// The experts of a layer, or of one group of it, that the scores put next to the cut, the nearest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Margin {
    /// The layer.
    pub layer: u32,
    /// Experts that stay.
    pub inside: Vec<u32>,
    /// Experts that do not.
    pub outside: Vec<u32>,
}

/// What lies next to the cut, up to `depth` experts on either side.
///
/// Groups of a router keep their numbers, so each has a margin of its own. Experts that are `settled` are in none.
pub fn margins(
    experts: &Experts,
    scores: &BTreeMap<u32, LayerScores>,
    keep: &KeptExperts,
    is_settled: &dyn Fn(u32, u32) -> bool,
    depth: usize,
) -> Vec<Margin> {
    let groups = experts.effective_groups().map_or(1, |groups| groups.count);
    let mut found = Vec::new();
    let cut = |layer: &&ExpertLayer| {
        keep.layer(layer.layer).is_some_and(|ids| ids.len() < layer.n_expert as usize)
            && layer.kind == LayerKind::Trunk
    };
    for layer in experts.layers.iter().filter(cut) {
        let Some(scores) = scores.get(&layer.layer) else { continue };
        let kept: BTreeSet<u32> = keep.layer(layer.layer).unwrap_or_default().iter().copied().collect();
        let size = (layer.n_expert / groups).max(1);
        for group in 0..groups {
            let members = scores.ranking().into_iter();
            let open = members.filter(|&id| id / size == group && !is_settled(layer.layer, id));
            let (stay, go): (Vec<u32>, Vec<u32>) = open.partition(|id| kept.contains(id));
            let margin = Margin {
                layer: layer.layer,
                inside: stay.into_iter().rev().take(depth).collect(),
                outside: go.into_iter().take(depth).collect(),
            };
            if !margin.inside.is_empty() && !margin.outside.is_empty() {
                found.push(margin);
            }
        }
    }
    found
}

/// The choice after some exchanges; `None` when they no longer fit.
pub fn exchanged(keep: &KeptExperts, exchanges: &[Exchange]) -> Option<KeptExperts> {
    let mut keep = keep.clone();
    for exchange in exchanges {
        let ids = keep.layer(exchange.layer)?;
        if !ids.contains(&exchange.leaves) || ids.contains(&exchange.enters) {
            return None;
        }
        let mut ids: Vec<u32> = ids.iter().copied().filter(|&id| id != exchange.leaves).collect();
        ids.push(exchange.enters);
        ids.sort_unstable();
        keep.insert(exchange.layer, ids);
    }
    Some(keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::test_experts;

    #[test]
    fn exchange_replaces_one_expert_by_another_and_keeps_the_order() {
        let keep = KeptExperts::from([(0, vec![1, 4, 6]), (1, vec![0, 2, 3])]);
        let exchange = Exchange { layer: 0, leaves: 6, enters: 0 };
        assert_eq!(exchanged(&keep, &[exchange]).unwrap().layer(0), Some(&[0, 1, 4][..]));
        let other = Exchange { layer: 1, leaves: 0, enters: 5 };
        let both = exchanged(&keep, &[exchange, other]).unwrap();
        assert_eq!((both.layer(0), both.layer(1)), (Some(&[0, 1, 4][..]), Some(&[2, 3, 5][..])));
        assert_eq!(exchanged(&keep, &[Exchange { leaves: 5, ..exchange }]), None);
        assert_eq!(exchanged(&keep, &[other, Exchange { enters: 4, ..exchange }]), None);
    }

    #[test]
    fn margin_begins_next_to_the_cut_and_leaves_settled_experts_out() {
        let experts = test_experts::experts("qwen3moe", &[(0, 6, 2), (1, 6, 2)], None);
        let scores = |values: [f64; 6]| LayerScores { value: values.to_vec(), tie: None };
        let scores = BTreeMap::from([
            (0, scores([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])),
            (1, scores([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ]);
        let keep = KeptExperts::from([(0, vec![0, 1, 2]), (1, vec![3, 4, 5])]);
        let found = margins(&experts, &scores, &keep, &|layer, id| (layer, id) == (1, 3), 2);
        assert_eq!(found[0], Margin { layer: 0, inside: vec![2, 1], outside: vec![3, 4] });
        assert_eq!(found[1], Margin { layer: 1, inside: vec![4, 5], outside: vec![2, 1] });
    }
}
