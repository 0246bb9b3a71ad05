//! Where the experts of a pruned file come from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thiserror::Error;

use super::hyperparameters::{IDS_KEY, MAX_EXPERTS, carries_ids};
use super::{Experts, KeptExperts};
use crate::gguf::{Metadata, Model, Value, ValueType};

/// Key of the number of experts that the model had before it was cut for the first time.
const COUNT_KEY: &str = "moeslice.expert_count_original";

/// For each layer with experts, the ids that they have in the model that was never cut.
///
/// A pruned file carries it in its metadata, `moeslice.expert_count_original` and `moeslice.expert_ids.<layer>`, so
/// that what is learnt from the file, or cut from it again, can be told in the ids of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMap {
    original_count: u32,
    layers: BTreeMap<u32, Vec<u32>>,
}

/// An id map that is not one, or a choice of experts that is none of its own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdMapError {
    /// Ids without the number of experts that they are from.
    #[error("{}: has {key} but no {COUNT_KEY}: the file was edited", file.display())]
    NoCount {
        /// The model.
        file: PathBuf,
        /// The first key with ids.
        key: String,
    },
    /// The number of original experts is no count, below that of the file, or beyond what llama.cpp has room for.
    #[error("{}: {COUNT_KEY} has to be a u32 from {n_expert} to {MAX_EXPERTS}: the file was edited", file.display())]
    Count {
        /// The model.
        file: PathBuf,
        /// Experts of the file.
        n_expert: u32,
    },
    /// Ids of a layer without experts.
    #[error("{}: {key} names no layer with experts: the file was edited", file.display())]
    Stray {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A cut layer without ids.
    #[error("{}: layer {layer} has {n_expert} of {original} experts but no {IDS_KEY}{layer}", file.display())]
    NoIds {
        /// The model.
        file: PathBuf,
        /// The layer.
        layer: u32,
        /// Its experts.
        n_expert: u32,
        /// Experts before the first cut.
        original: u32,
    },
    /// Ids that are no array of u32, or not one an expert.
    #[error("{}: {key} has to be {n_expert} ids of type u32: the file was edited", file.display())]
    Ids {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// An id beyond the experts.
    #[error("layer {layer} has no expert {id}: ids end at {}", count.saturating_sub(1))]
    Range {
        /// The layer.
        layer: u32,
        /// The id.
        id: u32,
        /// Number of experts.
        count: u32,
    },
    /// An id that occurs twice in a layer.
    #[error("layer {layer} has expert {id} twice")]
    Double {
        /// The layer.
        layer: u32,
        /// The id.
        id: u32,
    },
    /// Experts are chosen from a layer that has none.
    #[error("layer {layer} has no experts to choose from")]
    Layer {
        /// The layer.
        layer: u32,
    },
}

impl IdMap {
    /// Whether a model carries a map: whether it was cut.
    pub fn is_in(model: &Model) -> bool {
        carries_ids(model)
    }

    /// The map that a model carries; of a model that carries none, each expert's id is its own.
    pub fn read(model: &Model, experts: &Experts) -> Result<Self, IdMapError> {
        let (metadata, file) = (model.metadata(), model.path());
        let keys: Vec<&str> = metadata.keys().filter(|key| key.starts_with(IDS_KEY)).collect();
        let original_count = match (metadata.get(COUNT_KEY), keys.first()) {
            (None, None) => return Ok(Self::of_uncut(experts)),
            (None, Some(&key)) => return Err(IdMapError::NoCount { file: file.into(), key: key.into() }),
            (Some(Value::U32(count)), _) if (experts.n_expert..=MAX_EXPERTS).contains(&count) => count,
            _ => return Err(IdMapError::Count { file: file.into(), n_expert: experts.n_expert }),
        };
        // Blocks that are to be left out may have had experts.
        let dropped = experts.n_layer..experts.n_layer.saturating_add(experts.mtp_dropped);
        let known =
            |key: &str| layer_of(key).is_some_and(|il| experts.layer(il).is_some() || dropped.contains(&il));
        if let Some(key) = keys.into_iter().find(|key| !known(key)) {
            return Err(IdMapError::Stray { file: file.into(), key: key.into() });
        }
        let own_count = experts.arch.is_some_and(|arch| arch.per_layer_experts);
        let mut layers = BTreeMap::new();
        for layer in &experts.layers {
            let n_expert = layer.n_expert;
            let key = ids_key(layer.layer);
            let ids = match metadata.get(&key) {
                Some(value) => {
                    let ids = array_of_u32(value).filter(|ids| ids.len() as u64 == u64::from(n_expert));
                    ids.ok_or_else(|| IdMapError::Ids { file: file.into(), key, n_expert })?
                }
                // A layer that had fewer experts than were kept is whole.
                None if n_expert == original_count || own_count => (0..n_expert).collect(),
                None => {
                    let (layer, original) = (layer.layer, original_count);
                    return Err(IdMapError::NoIds { file: file.into(), layer, n_expert, original });
                }
            };
            check_ids(layer.layer, &ids, original_count)?;
            layers.insert(layer.layer, ids);
        }
        Ok(Self { original_count, layers })
    }

    fn of_uncut(experts: &Experts) -> Self {
        let layers =
            experts.layers.iter().map(|layer| (layer.layer, (0..layer.n_expert).collect())).collect();
        Self { original_count: experts.n_expert, layers }
    }

    /// Experts of a layer in the model that was never cut, of the largest layer where they differ.
    pub fn original_count(&self) -> u32 {
        self.original_count
    }

    /// The original ids of a layer's experts, by their ids in the file.
    pub fn layer(&self, layer: u32) -> Option<&[u32]> {
        self.layers.get(&layer).map(Vec::as_slice)
    }

    /// All layers with their original ids, ascending.
    pub fn layers(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.layers.iter().map(|(&layer, ids)| (layer, ids.as_slice()))
    }

    /// The map of the file in which only these experts stay, in this order, given by their ids in the present file.
    /// Layers that are not given are not in the new map.
    pub fn compose(&self, kept: &KeptExperts) -> Result<Self, IdMapError> {
        let mut layers = BTreeMap::new();
        for (layer, ids) in kept.iter() {
            let originals = self.layers.get(&layer).ok_or(IdMapError::Layer { layer })?;
            // No layer has more than the 1024 experts that llama.cpp has room for.
            check_ids(layer, ids, originals.len() as u32)?;
            layers.insert(layer, ids.iter().map(|&id| originals[id as usize]).collect());
        }
        Ok(Self { original_count: self.original_count, layers })
    }

    /// Writes the map into a file's metadata in place of the one it carries.
    pub fn write_into(&self, metadata: &mut Metadata) {
        metadata.retain(|key| {
            !key.starts_with(IDS_KEY) || layer_of(key).is_some_and(|layer| self.layers.contains_key(&layer))
        });
        metadata.set(COUNT_KEY, self.original_count);
        for (&layer, ids) in &self.layers {
            metadata.set(&ids_key(layer), ids.clone());
        }
    }
}

fn ids_key(layer: u32) -> String {
    format!("{IDS_KEY}{layer}")
}

/// The layer of a key of ids; `None` for any other key, and for one that [`ids_key`] does not make.
fn layer_of(key: &str) -> Option<u32> {
    let layer = key.strip_prefix(IDS_KEY)?.parse().ok()?;
    (ids_key(layer) == key).then_some(layer)
}

fn array_of_u32(value: Value<'_>) -> Option<Vec<u32>> {
    let array = value.as_array().filter(|array| array.element_type() == ValueType::U32)?;
    array.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

fn check_ids(layer: u32, ids: &[u32], count: u32) -> Result<(), IdMapError> {
    let mut seen = vec![false; count as usize];
    for &id in ids {
        match seen.get_mut(id as usize) {
            None => return Err(IdMapError::Range { layer, id, count }),
            Some(true) => return Err(IdMapError::Double { layer, id }),
            Some(seen) => *seen = true,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
