//! Which corpora want the same experts.

use super::Rankings;
use crate::usage::Usage;
use serde::Serialize;

/// The overlap of the corpora's hot sets: the half of the experts that each corpus uses most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overlap {
    /// Size of a hot set, half of the experts rounded up; a layer that has fewer is whole.
    pub k: u32,
    /// One row a pair of corpora, the pair that shares most first.
    pub rows: Vec<OverlapRow>,
}

/// The overlap of two corpora, over the layers that routed tokens of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverlapRow {
    /// A corpus.
    pub a: String,
    /// Another.
    pub b: String,
    /// Mean number of experts that are hot for both.
    pub shared_mean: f64,
    /// The smallest number of a layer.
    pub shared_least: usize,
    /// The first layer of that number.
    pub least_layer: u32,
    /// Mean of the number that two sets drawn at random share, k² / n.
    pub shared_by_chance: f64,
    /// Mean Jaccard index: experts hot for both over experts hot for either.
    pub jaccard_mean: f64,
}

impl Overlap {
    pub(super) fn new(usage: &Usage, corpora: &[(&str, Rankings)]) -> Option<Overlap> {
        let k = usage.model.n_expert.div_ceil(2);
        let mut rows = vec![];
        for (at, (b, of_b)) in corpora.iter().enumerate() {
            for (a, of_a) in &corpora[..at] {
                rows.extend(OverlapRow::new((a, of_a), (b, of_b), k));
            }
        }
        rows.sort_by(|x, y| y.shared_mean.total_cmp(&x.shared_mean));
        (!rows.is_empty()).then_some(Overlap { k, rows })
    }
}

impl OverlapRow {
    fn new((a, of_a): (&str, &Rankings), (b, of_b): (&str, &Rankings), k: u32) -> Option<OverlapRow> {
        let (mut shared, mut chance, mut jaccard) = (vec![], 0.0, 0.0);
        for (&layer, ids_a) in &of_a.0 {
            let Some(ids_b) = of_b.0.get(&layer) else { continue };
            let n = ids_a.len();
            let hot = n.min(k as usize);
            let both = ids_a[..hot].iter().filter(|id| ids_b[..hot].contains(id)).count();
            shared.push((layer, both));
            chance += (hot * hot) as f64 / n as f64;
            jaccard += both as f64 / (2 * hot - both) as f64;
        }
        let &(least_layer, shared_least) = shared.iter().min_by_key(|(_, both)| *both)?;
        let layers = shared.len() as f64;
        Some(OverlapRow {
            a: a.to_owned(),
            b: b.to_owned(),
            shared_mean: shared.iter().map(|(_, both)| *both as f64).sum::<f64>() / layers,
            shared_least,
            least_layer,
            shared_by_chance: chance / layers,
            jaccard_mean: jaccard / layers,
        })
    }
}
