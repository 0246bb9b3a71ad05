//! The kept experts of each layer, for a given number.

use super::{KeepTarget, Pins, PlanError};
use crate::moe::{ExpertLayer, Experts, KeptExperts, LayerKind};
use crate::score::LayerScores;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kept experts, and how clear the choice was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The kept ids of every layer with experts, ascending.
    pub keep: KeptExperts,
    /// Where the cut fell between equals.
    pub ties: Ties,
}

/// Cuts that fell between experts of equal score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ties {
    /// Layers in which the last kept expert and the first removed one have the same score.
    pub layers: u32,
    /// Experts of those layers that have the score at which the cut fell, kept and removed.
    pub experts: u32,
    /// Those of the layers in which gate weight did not decide either: there the lower id was kept.
    pub by_id: u32,
}

/// Keeps the `k` best experts of each layer: by score, then gate weight, then lower id.
///
/// Grouped routers keep `k / groups` in every group. A layer with no more than `k` experts stays whole and needs no
/// scores. Pinned experts come first, whatever their score.
///
/// # Errors
/// When the model cannot keep `k`, a layer that has to be cut has no scores, or the pins do not fit.
pub fn choose(
    experts: &Experts,
    scores: &BTreeMap<u32, LayerScores>,
    k: u32,
    always_keep: &Pins,
) -> Result<Choice, PlanError> {
    experts.check_count(k)?;
    always_keep.check(experts)?;
    always_keep.check_room(experts, k)?;
    check_counted(experts, k, |layer| scores.contains_key(&layer.layer))?;
    if let Some(&layer) = scores.keys().find(|&&layer| experts.layer(layer).is_none()) {
        return Err(PlanError::ForeignLayer { layer });
    }
    let mut choice = Choice { keep: KeptExperts::default(), ties: Ties::default() };
    for layer in &experts.layers {
        let ids = match scores.get(&layer.layer) {
            Some(scores) if scores.value.len() != layer.n_expert as usize => {
                let counted = scores.value.len();
                return Err(PlanError::ExpertCount { layer: layer.layer, counted, n_expert: layer.n_expert });
            }
            Some(scores) if layer.kept(k) < layer.n_expert => {
                let cut = LayerCut {
                    layer,
                    scores,
                    groups: experts.effective_groups().map_or(1, |groups| groups.count),
                    pins: always_keep,
                };
                cut.choose(k, &mut choice.ties)
            }
            _ => (0..layer.n_expert).collect(),
        };
        choice.keep.insert(layer.layer, ids);
    }
    Ok(choice)
}

/// Checks that every layer that keeping `k` experts would cut is `counted`: before a profile, whether it will be.
///
/// # Errors
/// Names the first layer that is not.
fn check_counted(experts: &Experts, k: u32, counted: impl Fn(&ExpertLayer) -> bool) -> Result<(), PlanError> {
    match experts.layers.iter().find(|layer| layer.kept(k) < layer.n_expert && !counted(layer)) {
        Some(&ExpertLayer { layer, kind: LayerKind::Mtp, .. }) => {
            Err(PlanError::Mtp { layer, runs: experts.mtp_that_runs() == Some(layer) })
        }
        Some(ExpertLayer { layer, .. }) => Err(PlanError::NeverReached { layer: *layer }),
        None => Ok(()),
    }
}

/// Everything that can be refused before a profile: the number of experts where `keep` and the model alone decide it,
/// the pins, and a layer that will not be `counted`. Gives that number.
///
/// # Errors
/// As [`KeepTarget::count`] and [`Pins::check`], and when a layer that is cut would get no counts.
pub fn check_early(
    experts: &Experts,
    keep: &KeepTarget,
    pins: &Pins,
    counted: impl Fn(&ExpertLayer) -> bool,
) -> Result<Option<u32>, PlanError> {
    let k = keep.count(experts)?;
    pins.check(experts)?;
    if let Some(k) = k {
        pins.check_room(experts, k)?;
    }
    // A number that is not known yet may cut every layer.
    check_counted(experts, k.unwrap_or(experts.n_expert.saturating_sub(1)), counted)?;
    Ok(k)
}

/// The cut of one layer.
struct LayerCut<'a> {
    layer: &'a ExpertLayer,
    scores: &'a LayerScores,
    groups: u32,
    pins: &'a Pins,
}

impl LayerCut<'_> {
    /// `k` ids, ascending; `k` is below the layer's experts, a multiple of the groups, and has room for the pins.
    fn choose(&self, k: u32, ties: &mut Ties) -> Vec<u32> {
        let (per_group, size) = (k / self.groups, self.layer.n_expert / self.groups);
        let mut ids = Vec::with_capacity(k as usize);
        let mut found = Ties::default();
        for group in 0..self.groups {
            let members = group * size..(group + 1) * size;
            let (pinned, mut free): (Vec<u32>, Vec<u32>) =
                members.partition(|&id| self.pins.contains(self.layer.layer, id));
            free.sort_by(|&a, &b| self.scores.compare(a as usize, b as usize));
            let (kept, removed) = free.split_at(per_group as usize - pinned.len());
            if let (Some(&last), Some(&first)) = (kept.last(), removed.first()) {
                self.count_ties(last as usize, first as usize, &free, &mut found);
            }
            ids.extend(pinned.iter().chain(kept));
        }
        ties.layers += found.layers.min(1);
        ties.experts += found.experts;
        ties.by_id += found.by_id.min(1);
        ids.sort_unstable();
        ids
    }

    fn count_ties(&self, last_kept: usize, first_removed: usize, free: &[u32], ties: &mut Ties) {
        let value = &self.scores.value;
        if value[last_kept] != value[first_removed] {
            return;
        }
        ties.layers += 1;
        ties.experts += free.iter().filter(|&&id| value[id as usize] == value[last_kept]).count() as u32;
        ties.by_id += u32::from(self.scores.compare_without_id(last_kept, first_removed).is_eq());
    }
}
