//! What becomes of each tensor in a cut.

use std::ops::Range;

use super::runs;
use crate::gguf::{Model, Tensor};
use crate::moe::{ExpertLayer, Experts, KeptExperts};

/// What becomes of the data of a tensor of the source.
#[derive(Clone, Copy)]
pub(super) enum TensorFate<'a> {
    /// All of it stays.
    Whole,
    /// The slabs of the kept experts stay.
    Slabs {
        /// Bytes of one expert.
        slab_bytes: u64,
        /// The experts that stay, ascending.
        kept: &'a [u32],
    },
    /// A table of expert ids is rewritten.
    Table {
        /// The layer that the table belongs to.
        layer: &'a ExpertLayer,
        /// The experts that stay, ascending.
        kept: &'a [u32],
    },
}

impl<'a> TensorFate<'a> {
    /// The fate of every tensor of `model`, in the order of [`Model::tensors`]. A table whose experts all stay is
    /// whole: nothing of it is looked at.
    pub(super) fn of_all(model: &Model, experts: &'a Experts, kept: &'a KeptExperts) -> Vec<Self> {
        let mut fates = vec![Self::Whole; model.tensors().len()];
        for layer in &experts.layers {
            let Some(kept) = kept.layer(layer.layer) else { continue };
            for tensor in &layer.tensors {
                fates[tensor.index] = Self::Slabs { slab_bytes: tensor.slab_bytes, kept };
            }
            if let Some(index) = layer.hash_table.filter(|_| kept.len() < layer.n_expert as usize) {
                fates[index] = Self::Table { layer, kept };
            }
        }
        fates
    }

    /// The ranges of the source's tensor that are read, in order.
    pub(super) fn runs(self, tensor: &Tensor) -> Vec<Range<u64>> {
        match self {
            Self::Slabs { slab_bytes, kept } => runs::of_experts(kept, slab_bytes).collect(),
            Self::Whole | Self::Table { .. } => std::iter::once(0..tensor.info.bytes()).collect(),
        }
    }
}
