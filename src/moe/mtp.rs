//! A model without its blocks of multi-token prediction (MTP), which are the last of its blocks.

use std::ops::Range;

use super::hyperparameters::Keys;
use super::{Experts, MoeError, names};
use crate::arch::MtpSupport;
use crate::gguf::{Metadata, Model, OwnedValue, Value, ValueType};

/// Keys of an architecture that llama.cpp reads by layer when they hold an array.
const PER_LAYER: &[&str] = &[
    "attention.compress_ratios",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.indexer.types",
    "attention.recurrent_layers",
    "attention.rope_pattern",
    "attention.sliding_window_pattern",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
];

/// Keys of an architecture that list layers by their numbers.
const LAYER_LISTS: &[&str] =
    &["attention.indexer.source_layers", "attention.kv_source_layers", "ple.layers", "target_layers"];

/// Keys of an architecture that hold an array with a length of its own.
const OTHER_ARRAYS: &[&str] = &[
    "classifier.output_labels",
    "engram.token_map",
    "ple.head_offsets",
    "ple.head_vocab_sizes",
    "ple.layer_multipliers",
    "rope.dimension_sections",
    "rope.scaling.short_factor",
    "rope.scaling.long_factor",
];

const COUNT_KEY: &str = "nextn_predict_layers";

impl Experts {
    /// All blocks of multi-token prediction, whether they have experts or not.
    pub fn mtp_blocks(&self) -> Range<u32> {
        self.n_layer.saturating_sub(self.n_mtp)..self.n_layer
    }

    /// The experts of `model`, which these are, when its blocks of multi-token prediction are left out of what is
    /// written. A model that has none stays what it is.
    ///
    /// # Errors
    /// When nothing with experts would be left, or it is not known what in the metadata belongs to the blocks.
    pub fn without_mtp(&self, model: &Model) -> Result<Self, MoeError> {
        if self.n_mtp == 0 {
            return Ok(self.clone());
        }
        let dropped = self.mtp_blocks();
        let mut experts = self.clone();
        experts.layers.retain(|layer| layer.layer < dropped.start);
        let refuse = |why: String| {
            let (file, first) = (model.path().to_owned(), dropped.start);
            Err(MoeError::MtpStays { file, layer: first, why })
        };
        if experts.layers.is_empty() {
            return refuse("no other block has experts".to_owned());
        }
        if self.arch.is_none_or(|arch| arch.mtp == MtpSupport::Never) {
            return refuse(format!("such blocks are not known of architecture {}", self.architecture));
        }
        let keys = Keys::of(model)?;
        for (key, value) in model.metadata().iter() {
            if let Some(why) = ties(&keys, key, value, &dropped) {
                return refuse(why);
            }
        }
        experts.n_layer = dropped.start;
        experts.n_mtp = 0;
        experts.mtp_runs = false;
        experts.mtp_dropped = self.n_mtp;
        if let Some(used) = &mut experts.used_per_layer {
            used.truncate(dropped.start as usize);
            experts.n_expert_used = used.iter().copied().max().unwrap_or(self.n_expert_used);
        }
        Ok(experts)
    }

    /// Whether a tensor is left out of what is written, with the blocks of multi-token prediction.
    pub(super) fn drops(&self, tensor: &str) -> bool {
        self.mtp_dropped > 0
            && (tensor.starts_with("nextn.")
                || names::split_block(tensor).is_some_and(|(layer, _)| layer >= self.n_layer))
    }

    /// Takes what belongs to the dropped blocks out of the metadata of a file.
    pub(super) fn drop_from(&self, metadata: &mut Metadata) {
        let name = |key: &str| format!("{}.{key}", self.architecture);
        metadata.remove(&name(COUNT_KEY));
        if metadata.contains(&name("block_count")) {
            metadata.set(&name("block_count"), self.n_layer);
        }
        for key in PER_LAYER {
            let key = name(key);
            let Some(Value::Array(array)) = metadata.get(&key) else { continue };
            if array.len() > u64::from(self.n_layer) {
                let left = array.iter().take(self.n_layer as usize).map(OwnedValue::from).collect();
                let left = OwnedValue::Array(array.element_type(), left);
                metadata.set(&key, left);
            }
        }
    }
}

/// What in a metadata entry stands against leaving the blocks out.
fn ties(keys: &Keys<'_>, key: &str, value: Value<'_>, dropped: &Range<u32>) -> Option<String> {
    let Value::Array(array) = value else { return None };
    if array.element_type() == ValueType::String && !key.starts_with("tokenizer.") {
        let of_block =
            |text: &str| names::split_block(text).is_some_and(|(layer, _)| dropped.contains(&layer));
        let named =
            array.iter().find_map(|value| value.as_str().filter(|text| of_block(text)).map(str::to_owned));
        return named.map(|tensor| format!("{key} names its tensor {tensor}"));
    }
    let part = key.strip_prefix(keys.architecture.as_str())?.strip_prefix('.')?;
    if LAYER_LISTS.contains(&part) {
        let named =
            array.iter().filter_map(|value| value.as_u64()).find(|&layer| layer >= dropped.start.into());
        return named.map(|layer| format!("{key} names layer {layer}"));
    }
    let known = PER_LAYER.contains(&part) || OTHER_ARRAYS.contains(&part);
    (!known && array.len() == u64::from(dropped.end)).then(|| {
        format!("{key} has {} entries, which may be one a block: a newer moeslice may know it", array.len())
    })
}

#[cfg(test)]
mod tests;
