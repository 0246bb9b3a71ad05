//! Whether a choice of experts is one that the model can be cut to.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::moe::{ExpertLayer, Experts, KeepError};

/// The experts that stay, by layer, in the ids of the file that is cut, ascending.
pub type Kept = BTreeMap<u32, Vec<u32>>;

/// Why a model cannot be cut to a choice of experts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeptError {
    /// A layer with experts is not mentioned.
    #[error("nothing is said of layer {layer}, which has {n_expert} experts: list those to keep")]
    MissingLayer {
        /// The layer.
        layer: u32,
        /// Its experts.
        n_expert: u32,
    },
    /// A layer without experts is mentioned.
    #[error("layer {layer} has no experts to keep: remove it from the list")]
    ExtraLayer {
        /// The layer.
        layer: u32,
    },
    /// An id beyond the layer's experts.
    #[error("layer {layer} has no expert {id}: its ids end at {}", n_expert.saturating_sub(1))]
    Range {
        /// The layer.
        layer: u32,
        /// The id.
        id: u32,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// An id that is listed twice, or after a larger one.
    #[error("expert {id} of layer {layer} is listed after {before}: ids have to ascend, each once")]
    Order {
        /// The layer.
        layer: u32,
        /// The id before.
        before: u32,
        /// The id.
        id: u32,
    },
    /// Layers that keep different numbers.
    #[error(
        "layer {layer} keeps {found} experts, but has to keep {expected} as the others do: llama.cpp has one number for all layers"
    )]
    Uneven {
        /// The layer.
        layer: u32,
        /// How many it keeps.
        found: u32,
        /// How many it has to keep.
        expected: u32,
    },
    /// Groups that keep different numbers.
    #[error(
        "group {group} of layer {layer} keeps {found} experts, but each of the {groups} groups has to keep {expected}"
    )]
    UnevenGroup {
        /// The layer.
        layer: u32,
        /// The group, from 0.
        group: u32,
        /// How many it keeps.
        found: u32,
        /// How many it has to keep.
        expected: u32,
        /// Groups of a layer.
        groups: u32,
    },
    /// A number that the model cannot keep.
    #[error(transparent)]
    Count(#[from] KeepError),
}

/// Checks a choice of experts, and returns `{arch}.expert_count` of the cut file.
///
/// Every layer keeps the same number, or all of its own experts where it has fewer. Where nothing is removed, the
/// number stays what it was.
pub fn check(experts: &Experts, kept: &Kept) -> Result<u32, KeptError> {
    let known = |layer: &u32| experts.layer(*layer).is_some();
    if let Some(&layer) = kept.keys().find(|layer| !known(layer)) {
        return Err(KeptError::ExtraLayer { layer });
    }
    let mut lists = Vec::with_capacity(experts.layers.len());
    for layer in &experts.layers {
        let missing = KeptError::MissingLayer { layer: layer.layer, n_expert: layer.n_expert };
        let ids = kept.get(&layer.layer).ok_or(missing)?;
        check_ids(layer, ids)?;
        // No layer has more ids than experts, a u32.
        lists.push((layer, ids.as_slice(), ids.len() as u32));
    }
    if lists.iter().all(|(layer, _, count)| *count == layer.n_expert) {
        return Ok(experts.n_expert);
    }
    // The number that most agree on is the one that was meant. A layer that stays whole says nothing.
    let cut = lists.iter().filter(|(layer, _, count)| *count < layer.n_expert).map(|&(_, _, count)| count);
    let k = most_frequent(cut).unwrap_or(experts.n_expert);
    if let Some((layer, _, found)) = lists.iter().find(|(layer, _, count)| *count != layer.kept(k)) {
        let expected = layer.kept(k);
        return Err(KeptError::Uneven { layer: layer.layer, found: *found, expected });
    }
    experts.check_keep(k)?;
    let honoured = experts.family.is_none_or(|family| family.groups);
    if let Some(groups) = experts.groups.filter(|groups| groups.count > 1 && honoured) {
        lists.iter().try_for_each(|(layer, ids, _)| check_groups(layer, ids, groups.count))?;
    }
    Ok(k)
}

fn check_ids(layer: &ExpertLayer, ids: &[u32]) -> Result<(), KeptError> {
    let (layer, n_expert) = (layer.layer, layer.n_expert);
    if let Some(&id) = ids.iter().find(|&&id| id >= n_expert) {
        return Err(KeptError::Range { layer, id, n_expert });
    }
    match ids.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(KeptError::Order { layer, before: pair[0], id: pair[1] }),
        None => Ok(()),
    }
}

/// Groups are runs of consecutive experts, of `n_expert / groups` each.
fn check_groups(layer: &ExpertLayer, ids: &[u32], groups: u32) -> Result<(), KeptError> {
    let size = (layer.n_expert / groups).max(1);
    let expected = ids.len() as u32 / groups;
    for group in 0..groups {
        let found = ids.iter().filter(|&&id| id / size == group).count() as u32;
        if found != expected {
            return Err(KeptError::UnevenGroup { layer: layer.layer, group, found, expected, groups });
        }
    }
    Ok(())
}

/// The value that occurs most often, the smallest of several.
fn most_frequent(values: impl Iterator<Item = u32>) -> Option<u32> {
    let mut times = BTreeMap::new();
    for value in values {
        *times.entry(value).or_insert(0_usize) += 1;
    }
    times.into_iter().max_by_key(|&(value, times)| (times, std::cmp::Reverse(value))).map(|(value, _)| value)
}
