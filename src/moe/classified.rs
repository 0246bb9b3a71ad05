//! The tensors of a model by what the experts are to them.

use std::collections::BTreeMap;

use super::names::{Axis, classify, split_block};
use crate::gguf::{Model, Tensor};

/// A tensor that belongs to the experts of a layer.
#[derive(Clone, Copy)]
pub(super) struct LayerTensor<'a> {
    pub(super) index: usize,
    pub(super) axis: Axis,
    pub(super) tensor: &'a Tensor,
}

/// The tensors of a model by what the experts are to them.
#[derive(Default)]
pub(super) struct ClassifiedTensors<'a> {
    /// By layer, tensors with an expert axis and hash tables.
    pub(super) layers: BTreeMap<u32, Vec<LayerTensor<'a>>>,
    pub(super) unknown: Vec<&'a Tensor>,
    pub(super) per_expert: Option<&'a Tensor>,
    pub(super) chunks: bool,
    pub(super) shared: bool,
}

impl<'a> ClassifiedTensors<'a> {
    pub(super) fn of(model: &'a Model) -> Self {
        let mut classified = Self::default();
        for (index, tensor) in model.tensors().iter().enumerate() {
            let name = tensor.info.name.as_str();
            let axis = classify(name);
            match (axis, split_block(name)) {
                (Axis::Expert(_) | Axis::HashTable, Some((layer, _))) => {
                    classified.layers.entry(layer).or_default().push(LayerTensor { index, axis, tensor });
                }
                (Axis::PerExpert, _) => classified.per_expert = classified.per_expert.or(Some(tensor)),
                (Axis::Chunk, _) => classified.chunks = true,
                (Axis::Unknown, _) => classified.unknown.push(tensor),
                (_, Some((_, "ffn_up_shexp.weight"))) => classified.shared = true,
                _ => {}
            }
        }
        classified
    }
}
