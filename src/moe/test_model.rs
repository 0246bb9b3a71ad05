//! Small models for tests, written with our own writer.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Experts, MoeError};
use crate::gguf::{Metadata, Model, OwnedValue, TensorInfo, TensorType, write_model};

/// Width of the test models' router inputs.
pub(crate) const N_EMBD: u64 = 6;
/// Width of the test models' experts.
pub(crate) const N_FF: u64 = 5;

/// A model under construction.
#[derive(Clone, Debug)]
pub(crate) struct TestModel {
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<(TensorInfo, Vec<u8>)>,
    architecture: &'static str,
}

impl TestModel {
    /// A model without layers.
    pub(crate) fn new(architecture: &'static str, n_layer: u32, n_expert: u32, n_expert_used: u32) -> Self {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", architecture);
        let mut model = Self { metadata, tensors: Vec::new(), architecture };
        model.key("block_count", n_layer);
        model.key("expert_count", n_expert);
        model.key("expert_used_count", n_expert_used);
        model.tensor("token_embd.weight", &[N_EMBD, 7]);
        model
    }

    /// A model whose every layer has the plain expert tensors.
    pub(crate) fn plain(architecture: &'static str, n_layer: u32, n_expert: u32, n_expert_used: u32) -> Self {
        let mut model = Self::new(architecture, n_layer, n_expert, n_expert_used);
        for layer in 0..n_layer {
            model.plain_layer(layer, n_expert.into());
        }
        model
    }

    pub(crate) fn key(&mut self, key: &str, value: impl Into<OwnedValue>) -> &mut Self {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
        self
    }

    pub(crate) fn drop_key(&mut self, key: &str) -> &mut Self {
        assert!(self.metadata.remove(&format!("{}.{key}", self.architecture)), "{key} was set");
        self
    }

    /// Adds an F32 tensor with data of its own.
    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64]) -> &mut Self {
        self.typed(name, dims, TensorType::F32)
    }

    pub(crate) fn typed(&mut self, name: &str, dims: &[u64], ty: TensorType) -> &mut Self {
        let info = TensorInfo::new(name, dims.to_vec(), ty).expect("a valid tensor");
        let seed = self.tensors.len() as u8;
        let data = (0..info.bytes()).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        self.tensors.push((info, data));
        self
    }

    /// Adds a tensor to a block.
    pub(crate) fn part(&mut self, layer: u32, part: &str, dims: &[u64]) -> &mut Self {
        self.tensor(&format!("blk.{layer}.{part}"), dims)
    }

    pub(crate) fn plain_layer(&mut self, layer: u32, n: u64) -> &mut Self {
        self.part(layer, "attn_norm.weight", &[N_EMBD])
            .part(layer, "ffn_gate_inp.weight", &[N_EMBD, n])
            .part(layer, "ffn_gate_exps.weight", &[N_EMBD, N_FF, n])
            .part(layer, "ffn_up_exps.weight", &[N_EMBD, N_FF, n])
            .part(layer, "ffn_down_exps.weight", &[N_FF, N_EMBD, n])
    }

    /// Experts of each layer of [`TestModel::small`].
    pub(crate) const N: u64 = 4;
    /// Width of its router inputs; its experts have two hidden units.
    pub(crate) const WIDTH: u64 = 3;

    /// A model of two layers whose expert tensors are small enough to write their values down.
    pub(crate) fn small() -> Self {
        let (n, width) = (Self::N, Self::WIDTH);
        let mut model = Self::new("qwen3moe", 2, n as u32, 2);
        for layer in 0..2 {
            model
                .part(layer, "ffn_gate_inp.weight", &[width, n])
                .part(layer, "ffn_gate_exps.weight", &[width, 2, n])
                .part(layer, "ffn_up_exps.weight", &[width, 2, n])
                .part(layer, "ffn_down_exps.weight", &[2, width, n]);
        }
        model
    }

    pub(crate) fn dense_layer(&mut self, layer: u32) -> &mut Self {
        self.part(layer, "ffn_gate.weight", &[N_EMBD, N_FF])
            .part(layer, "ffn_up.weight", &[N_EMBD, N_FF])
            .part(layer, "ffn_down.weight", &[N_FF, N_EMBD])
    }

    pub(crate) fn write(&self, path: &Path) {
        write_file(path, &self.metadata, &self.tensors);
    }

    /// The model as a file.
    pub(crate) fn open(&self) -> Opened {
        let folder = TempDir::new().expect("a folder for temporary files");
        let path = folder.path().join("model.gguf");
        self.write(&path);
        let model = Model::open(&path).expect("a valid model");
        Opened { model, path, _folder: folder }
    }

    /// The experts of the model.
    pub(crate) fn read(&self) -> Result<Experts, MoeError> {
        Experts::read(&self.open().model)
    }

    /// The message with which the model is refused, without the path of the file.
    pub(crate) fn refusal(&self) -> String {
        let opened = self.open();
        let error = Experts::read(&opened.model).expect_err("the model is refused");
        let message = error.to_string();
        let prefix = format!("{}: ", opened.path.display());
        message.strip_prefix(&prefix).expect("the message begins with the file").to_owned()
    }
}

/// Writes a GGUF file.
pub(crate) fn write_file(path: &Path, metadata: &Metadata, tensors: &[(TensorInfo, Vec<u8>)]) {
    let mut bytes = Vec::new();
    write_model(&mut bytes, metadata, tensors).expect("a valid file");
    std::fs::write(path, bytes).expect("a writable folder");
}

/// An F32 tensor of these values.
pub(crate) fn f32_tensor(name: &str, dims: &[u64], values: &[f32]) -> (TensorInfo, Vec<u8>) {
    let info = TensorInfo::new(name, dims.to_vec(), TensorType::F32).expect("a valid tensor");
    (info, values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

/// A model file that is gone when this is dropped.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl Opened {
    pub(crate) fn experts(&self) -> Experts {
        Experts::read(&self.model).expect("a model with experts")
    }
}
