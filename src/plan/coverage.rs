//! The share of the routing that a set of experts covers.

use crate::moe::KeptExperts;
use crate::usage::{ExpertSums, LayerUsage, Usage};
use serde::Serialize;
use std::collections::BTreeMap;

/// How much of the routing kept experts cover: kept selections over all selections of a layer, over the layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Coverage {
    /// Mean over the layers, each layer weighing the same.
    #[serde(rename = "coverage_mean")]
    pub mean: f64,
    /// The smallest of a layer.
    #[serde(rename = "coverage_worst")]
    pub worst: f64,
    /// The layer of the smallest; of several, the first.
    pub worst_layer: u32,
}

/// Coverage of all corpora together, and of each.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Coverages {
    /// All corpora together.
    pub all: Coverage,
    /// Each corpus by name; absent for a corpus that no layer routed a token of.
    pub corpora: BTreeMap<String, Coverage>,
}

impl Coverages {
    /// Whether every layer of all corpora together, or with `each` of every corpus, is covered to `share`.
    pub fn reach(&self, share: f64, each: bool) -> bool {
        if each {
            self.corpora.values().all(|coverage| coverage.worst >= share)
        } else {
            self.all.worst >= share
        }
    }
}

/// The coverage of `keep` in `usage`; `None` when no layer routed a token. A layer that `keep` does not name is whole.
pub fn coverage(usage: &Usage, keep: &KeptExperts) -> Option<Coverages> {
    let all = over_layers(usage, keep, &|layer| Some(&layer.total))?;
    let corpora = usage.corpora.iter().filter_map(|corpus| {
        let coverage = over_layers(usage, keep, &|layer| layer.corpora.get(&corpus.name))?;
        Some((corpus.name.clone(), coverage))
    });
    Some(Coverages { all, corpora: corpora.collect() })
}

/// Coverage over the layers of those sums that `pick` takes from each; layers without tokens have nothing to cover.
pub fn over_layers<'a>(
    usage: &'a Usage,
    keep: &KeptExperts,
    pick: &dyn Fn(&'a LayerUsage) -> Option<&'a ExpertSums>,
) -> Option<Coverage> {
    let mut shares = Vec::with_capacity(usage.layers.len());
    for layer in &usage.layers {
        let Some(sums) = pick(layer) else { continue };
        let kept = keep.layer(layer.layer);
        if let Some(share) = covered(sums, kept) {
            shares.push((layer.layer, share));
        }
    }
    let &(mut worst_layer, mut worst) = shares.first()?;
    for &(layer, share) in &shares {
        if share < worst {
            (worst_layer, worst) = (layer, share);
        }
    }
    let mean = shares.iter().map(|(_, share)| share).sum::<f64>() / shares.len() as f64;
    Some(Coverage { mean, worst, worst_layer })
}

/// The share of a layer's routing that the kept experts cover, all of it where nothing is said of the layer: one
/// correctly rounded division; `None` without selections.
pub fn covered(sums: &ExpertSums, kept: Option<&[u32]>) -> Option<f64> {
    let all: u64 = sums.count.iter().sum();
    let kept = match kept {
        None => all,
        Some(ids) => ids.iter().filter_map(|&id| sums.count.get(id as usize)).sum(),
    };
    (all > 0).then(|| kept as f64 / all as f64)
}
