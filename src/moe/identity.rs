//! What tells one model from another.

use sha2::{Digest, Sha256};

use super::{Experts, MoeError, Role, RouterSketch};
use crate::digest::hex;
use crate::gguf::Model;

/// Bytes of tensor data read at once.
const CHUNK: usize = 1 << 20;
/// Metadata that a model has only in shards, or in other numbers there.
const SPLIT: &str = "split.";

/// A model as a usage profile or a plan remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `general.architecture`.
    pub architecture: String,
    /// `sha256:` and 64 hexadecimal digits, over the metadata and the tensor table: this very model, whether in one
    /// file or in shards.
    ///
    /// Hashed are, in the order of the file: of each metadata entry whose key does not begin with `split.`, the key
    /// and the encoded value; of each tensor its name, its dimensions as u64 and its type's id as u32. Every string
    /// and every value is preceded by its length in bytes, every dimension list by their number, both lists by the
    /// number of their entries; all these numbers are u64, little-endian.
    pub fingerprint: String,
    /// `sha256:` and 64 hexadecimal digits, over the router weights: the same for another quantisation of the model,
    /// since quantisers leave routers alone.
    ///
    /// Hashed are, by layer, the name and the data of each router weight tensor, each preceded by its length.
    pub router_hash: String,
    /// A few weights of each router, where they are of a type that can be compared with another.
    pub router_sketch: Option<RouterSketch>,
    /// Blocks.
    pub n_layer: u32,
    /// Experts of a layer, of the largest where they differ.
    pub n_expert: u32,
    /// Experts that a token goes to, the largest number of all layers.
    pub n_expert_used: u32,
    /// The layers with experts, ascending.
    pub expert_layers: Vec<u32>,
}

impl Identity {
    /// The identity of a model. Reads the routers, nothing else of the tensors.
    pub fn of(model: &Model, experts: &Experts) -> Result<Self, MoeError> {
        Ok(Self {
            architecture: experts.architecture.clone(),
            fingerprint: fingerprint(model),
            router_hash: router_hash(model, experts)?,
            router_sketch: RouterSketch::of(model, experts)?,
            n_layer: experts.n_layer,
            n_expert: experts.n_expert,
            n_expert_used: experts.n_expert_used,
            expert_layers: experts.layers.iter().map(|layer| layer.layer).collect(),
        })
    }
}

/// [`Identity::fingerprint`] alone, for which no tensor is read.
pub(crate) fn fingerprint(model: &Model) -> String {
    let entries = || model.metadata().raw_entries().filter(|(key, _)| !key.starts_with(SPLIT.as_bytes()));
    let mut hash = Sha256::new();
    hash.update(length(entries().count()));
    for (key, value) in entries() {
        update_sized(&mut hash, key);
        update_sized(&mut hash, value);
    }
    hash.update(length(model.tensors().len()));
    for tensor in model.tensors() {
        update_sized(&mut hash, tensor.info.raw_name());
        hash.update(length(tensor.info.dims.len()));
        for dim in &tensor.info.dims {
            hash.update(dim.to_le_bytes());
        }
        hash.update(tensor.info.ty.id().to_le_bytes());
    }
    finish(hash)
}

fn router_hash(model: &Model, experts: &Experts) -> Result<String, MoeError> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    for layer in &experts.layers {
        let Some(router) = layer.tensor(Role::RouterWeight) else { continue };
        let tensor = &model.tensors()[router.index];
        update_sized(&mut hash, tensor.info.name.as_bytes());
        let bytes = tensor.info.bytes();
        hash.update(bytes.to_le_bytes());
        let mut offset = 0;
        while offset < bytes {
            let part = usize::try_from(bytes - offset).map_or(CHUNK, |left| left.min(CHUNK));
            model.read_exact_at(tensor, offset, &mut chunk[..part])?;
            hash.update(&chunk[..part]);
            offset += part as u64;
        }
    }
    Ok(finish(hash))
}

fn update_sized(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(length(bytes.len()));
    hash.update(bytes);
}

fn length(len: usize) -> [u8; 8] {
    (len as u64).to_le_bytes()
}

fn finish(hash: Sha256) -> String {
    format!("sha256:{}", hex(&hash.finalize()))
}

#[cfg(test)]
mod tests;
