//! A choice of experts that stay, and whether a model can be cut to it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Index;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::{CountError, ExpertLayer, Experts, LayerKind};
use crate::json::unique_keys;

/// The experts that stay, by layer: the ids of the file that is cut, ascending.
///
/// ```
/// use moeslice::moe::KeptExperts;
///
/// let kept = KeptExperts::from([(0, vec![1, 4, 6]), (1, vec![0, 2, 3])]);
/// assert_eq!(kept.layer(1), Some(&[0, 2, 3][..]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct KeptExperts(BTreeMap<u32, Vec<u32>>);

/// Why a model cannot be cut to a choice of experts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeptError {
    /// A layer has experts and nothing is said of it.
    #[error("layer {layer} is missing: it has {n_expert} experts; name those to keep")]
    MissingLayer {
        /// The layer.
        layer: u32,
        /// Its experts.
        n_expert: u32,
    },
    /// A block of multi-token prediction has experts and nothing is said of it.
    #[error(
        "layer {layer}, a multi-token-prediction (MTP) block, is missing: name the ones of its {n_expert} experts to keep, \
         or leave the block out"
    )]
    MissingMtp {
        /// The layer.
        layer: u32,
        /// Its experts.
        n_expert: u32,
    },
    /// A layer without experts is named.
    #[error("layer {layer} has no experts in this model; its layers with experts are {layers}")]
    ExtraLayer {
        /// The layer.
        layer: u32,
        /// The layers that have experts.
        layers: String,
    },
    /// An id beyond the layer's experts.
    #[error("layer {layer}: there is no expert {id}; the layer has {n_expert}, 0 to {}", n_expert.saturating_sub(1))]
    Id {
        /// The layer.
        layer: u32,
        /// The id.
        id: u32,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// An id that is listed twice.
    #[error("layer {layer}: expert {id} is listed twice")]
    Twice {
        /// The layer.
        layer: u32,
        /// The id.
        id: u32,
    },
    /// An id that is listed after a larger one.
    #[error("layer {layer}: expert {id} is listed after {before}: ids have to ascend")]
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
        "layer {layer} keeps {kept} experts, it must keep {wanted} like layer {other}: llama.cpp has one count for all"
    )]
    Uneven {
        /// The layer.
        layer: u32,
        /// Experts that it keeps.
        kept: usize,
        /// Experts that it would have to keep.
        wanted: usize,
        /// The layer that it is held against.
        other: u32,
    },
    /// A layer with fewer experts than the others keep is cut.
    #[error(
        "layer {layer} keeps {kept} of its {n_expert} experts, it must keep all of them: layer {other} keeps {k}"
    )]
    SmallLayer {
        /// The layer.
        layer: u32,
        /// Experts that it keeps.
        kept: usize,
        /// Experts that it has.
        n_expert: u32,
        /// Experts that the largest layers keep.
        k: u32,
        /// One of those.
        other: u32,
    },
    /// Groups that keep different numbers.
    #[error("layer {layer}: group {group} keeps {kept} experts, each group must keep {wanted}")]
    UnevenGroups {
        /// The layer.
        layer: u32,
        /// The group, from 0.
        group: u32,
        /// Experts of it that are kept.
        kept: usize,
        /// Experts that each group must keep.
        wanted: usize,
    },
    /// A number that the model cannot keep.
    #[error(transparent)]
    Count(#[from] CountError),
}

impl KeptExperts {
    /// The ids that stay in a layer; `None` where nothing is said of it.
    pub fn layer(&self, layer: u32) -> Option<&[u32]> {
        self.0.get(&layer).map(Vec::as_slice)
    }

    /// Each layer and the ids that stay in it, by layer.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.0.iter().map(|(&layer, ids)| (layer, ids.as_slice()))
    }

    /// Says which ids stay in a layer; they must ascend.
    pub fn insert(&mut self, layer: u32, ids: Vec<u32>) {
        self.0.insert(layer, ids);
    }

    /// Says nothing any more of the layers that are not `wanted`.
    pub fn retain(&mut self, wanted: impl Fn(u32) -> bool) {
        self.0.retain(|&layer, _| wanted(layer));
    }

    /// The first `k` experts of each layer, or of each group: a choice to try sizes and outputs with.
    pub fn any(experts: &Experts, k: u32) -> Self {
        let groups = experts.effective_groups().map_or(1, |groups| groups.count);
        let ids = |layer: &ExpertLayer| match layer.kept(k) {
            k if k == layer.n_expert => (0..k).collect(),
            k => {
                let size = layer.n_expert / groups;
                (0..groups).flat_map(|group| (0..k / groups).map(move |id| group * size + id)).collect()
            }
        };
        experts.layers.iter().map(|layer| (layer.layer, ids(layer))).collect()
    }

    /// Checks that a model can be cut to this choice, and gives the number of experts that its layers keep:
    /// `{arch}.expert_count` of the cut file.
    ///
    /// Every layer keeps the same number, or all of its own experts where it has fewer; with groups, each group keeps
    /// the same number.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, experts: &Experts) -> Result<u32, KeptError> {
        if let Some((layer, _)) = self.iter().find(|(layer, _)| experts.layer(*layer).is_none()) {
            let layers: Vec<String> = experts.layers.iter().map(|layer| layer.layer.to_string()).collect();
            return Err(KeptError::ExtraLayer { layer, layers: layers.join(", ") });
        }
        let mut lists = Vec::with_capacity(experts.layers.len());
        for layer in &experts.layers {
            let (il, n_expert) = (layer.layer, layer.n_expert);
            let ids = self.layer(il).ok_or(match layer.kind {
                LayerKind::Mtp => KeptError::MissingMtp { layer: il, n_expert },
                _ => KeptError::MissingLayer { layer: il, n_expert },
            })?;
            check_ids(layer, ids)?;
            lists.push((layer, ids));
        }
        if lists.iter().all(|(layer, ids)| ids.len() == layer.n_expert as usize) {
            return Ok(experts.n_expert);
        }
        let Some((other, k)) = number_kept(&lists) else { return Ok(experts.n_expert) };
        for &(layer, ids) in &lists {
            let (il, kept, wanted) = (layer.layer, ids.len(), layer.kept(k) as usize);
            if kept == wanted {
                continue;
            }
            return Err(if layer.n_expert <= k {
                KeptError::SmallLayer { layer: il, kept, n_expert: layer.n_expert, k, other }
            } else {
                KeptError::Uneven { layer: il, kept, wanted, other }
            });
        }
        experts.check_count(k)?;
        if let Some(groups) = experts.effective_groups() {
            let cut = lists.iter().filter(|(layer, ids)| ids.len() < layer.n_expert as usize);
            cut.into_iter().try_for_each(|(layer, ids)| check_groups(layer, ids, groups.count))?;
        }
        Ok(k)
    }
}

impl<const N: usize> From<[(u32, Vec<u32>); N]> for KeptExperts {
    fn from(layers: [(u32, Vec<u32>); N]) -> Self {
        layers.into_iter().collect()
    }
}

impl Index<u32> for KeptExperts {
    type Output = [u32];

    /// The ids that stay in a layer.
    ///
    /// # Panics
    /// When nothing is said of it: see [`KeptExperts::layer`].
    fn index(&self, layer: u32) -> &[u32] {
        &self.0[&layer]
    }
}

impl FromIterator<(u32, Vec<u32>)> for KeptExperts {
    fn from_iter<I: IntoIterator<Item = (u32, Vec<u32>)>>(layers: I) -> Self {
        KeptExperts(layers.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for KeptExperts {
    /// Reads the ids of each layer and sorts them. An id that is no id is an error that names its layer.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lists: BTreeMap<u32, Vec<serde_json::Value>> = unique_keys::deserialize(deserializer)?;
        lists
            .into_iter()
            .map(|(layer, values)| {
                let id = |value: serde_json::Value| {
                    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
                    id.ok_or_else(|| D::Error::custom(format!("layer {layer}: {value} is not an expert id")))
                };
                let mut ids: Vec<u32> = values.into_iter().map(id).collect::<Result<_, _>>()?;
                ids.sort_unstable();
                Ok((layer, ids))
            })
            .collect()
    }
}

fn check_ids(layer: &ExpertLayer, ids: &[u32]) -> Result<(), KeptError> {
    let (layer, n_expert) = (layer.layer, layer.n_expert);
    if let Some(&id) = ids.iter().find(|&&id| id >= n_expert) {
        return Err(KeptError::Id { layer, id, n_expert });
    }
    match ids.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) if pair[0] == pair[1] => Err(KeptError::Twice { layer, id: pair[1] }),
        Some(pair) => Err(KeptError::Order { layer, before: pair[0], id: pair[1] }),
        None => Ok(()),
    }
}

/// Groups are runs of consecutive experts, of `n_expert / groups` each.
fn check_groups(layer: &ExpertLayer, ids: &[u32], groups: u32) -> Result<(), KeptError> {
    let size = (layer.n_expert / groups).max(1);
    let wanted = ids.len() / groups as usize;
    for group in 0..groups {
        let kept = ids.iter().filter(|&&id| id / size == group).count();
        if kept != wanted {
            return Err(KeptError::UnevenGroups { layer: layer.layer, group, kept, wanted });
        }
    }
    Ok(())
}

/// The number that most of the largest layers keep, which no shortage of experts limits, and the first of these.
fn number_kept(lists: &[(&ExpertLayer, &[u32])]) -> Option<(u32, u32)> {
    let largest = lists.iter().map(|(layer, _)| layer.n_expert).max()?;
    let mut by_number: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for (layer, ids) in lists.iter().filter(|(layer, _)| layer.n_expert == largest) {
        by_number.entry(ids.len()).or_insert((0, layer.layer)).0 += 1;
    }
    let (&k, &(_, layer)) = by_number.iter().max_by_key(|(_, (layers, first))| (*layers, Reverse(*first)))?;
    // No list is longer than its layer, whose experts are counted by a u32.
    Some((layer, k as u32))
}
