//! Random models with the tensors of real architectures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use moeslice::gguf::{
    Layout, Metadata, Model, OwnedValue, TensorInfo, TensorType, declared_alignment, shard_path,
};
use moeslice::moe::{Experts, Identity, KeptExperts, Provenance};
use moeslice::progress::Silent;
use moeslice::slice::{Cut, Options, SliceError, Written, prune};

pub use crate::random::Random;

/// A model in memory.
#[derive(Clone, Debug)]
pub struct Sample {
    pub architecture: &'static str,
    pub metadata: Metadata,
    pub tensors: Vec<(TensorInfo, Vec<u8>)>,
    pub n_expert: u32,
    seed: u64,
}

/// What a layer of experts has beside router, gate, up and down.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    pub fused: bool,
    pub no_gate: bool,
    pub biases: bool,
    pub selection_bias: bool,
    pub scales: bool,
    pub shared: bool,
}

/// Width of the models: the largest block of all types.
pub const N_EMBD: u64 = 256;
/// Width of an expert.
pub const N_FF: u64 = 256;
pub const N_VOCAB: u64 = 40;

impl Sample {
    pub fn new(
        architecture: &'static str,
        n_layer: u32,
        n_expert: u32,
        n_expert_used: u32,
        seed: u64,
    ) -> Self {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", architecture);
        metadata.set("general.name", "a random model");
        let mut sample = Self { architecture, metadata, tensors: Vec::new(), n_expert, seed };
        sample.key("block_count", n_layer);
        sample.key("expert_count", n_expert);
        sample.key("expert_used_count", n_expert_used);
        sample
            .metadata
            .set("tokenizer.ggml.tokens", (0..N_VOCAB).map(|i| format!("t{i}")).collect::<Vec<_>>());
        sample.tensor("token_embd.weight", &[N_EMBD, N_VOCAB], TensorType::Q8_0);
        sample
    }

    /// Layers of the plain kind, all with experts.
    pub fn plain(n_layer: u32, n_expert: u32, n_expert_used: u32) -> Self {
        let mut sample = Self::new("qwen3moe", n_layer, n_expert, n_expert_used, 7);
        for layer in 0..n_layer {
            sample.layer(layer, n_expert, TensorType::Q8_0, Extras::default());
        }
        sample.tensor("output_norm.weight", &[N_EMBD], TensorType::F32);
        sample
    }

    pub fn key(&mut self, key: &str, value: impl Into<OwnedValue>) -> &mut Self {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
        self
    }

    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: TensorType) -> &mut Self {
        let info = TensorInfo::new(name, dims.to_vec(), ty).unwrap();
        let mut data = vec![0; info.bytes() as usize];
        Random(self.seed ^ (self.tensors.len() as u64) << 32).fill(&mut data);
        if ty == TensorType::F32 {
            // Without the top bit of its exponent a number is finite, as a router's weights are.
            data.as_chunks_mut::<4>().0.iter_mut().for_each(|number| number[3] &= 0xbf);
        }
        self.tensors.push((info, data));
        self
    }

    pub fn layer(&mut self, layer: u32, n_expert: u32, ty: TensorType, extras: Extras) -> &mut Self {
        let n = u64::from(n_expert);
        let mut add = |name: &str, dims: &[u64], ty| {
            self.tensor(&format!("blk.{layer}.{name}"), dims, ty);
        };
        add("attn_norm.weight", &[N_EMBD], TensorType::F32);
        // As long as there are experts, but no part of them.
        add("attn_sinks.weight", &[n], TensorType::F32);
        add("ffn_gate_inp.weight", &[N_EMBD, n], TensorType::F32);
        if extras.fused {
            add("ffn_gate_up_exps.weight", &[N_EMBD, 2 * N_FF, n], ty);
        } else {
            if !extras.no_gate {
                add("ffn_gate_exps.weight", &[N_EMBD, N_FF, n], ty);
            }
            add("ffn_up_exps.weight", &[N_EMBD, N_FF, n], ty);
        }
        add("ffn_down_exps.weight", &[N_FF, N_EMBD, n], ty);
        if extras.biases {
            add("ffn_gate_inp.bias", &[n], TensorType::F32);
            add("ffn_gate_exps.bias", &[N_FF, n], TensorType::F32);
            add("ffn_up_exps.bias", &[N_FF, n], TensorType::F32);
            add("ffn_down_exps.bias", &[N_EMBD, n], TensorType::F32);
        }
        if extras.selection_bias {
            add("exp_probs_b.bias", &[n], TensorType::F32);
        }
        if extras.scales {
            for part in ["gate", "up", "down"] {
                add(&format!("ffn_{part}_exps.scale"), &[n], TensorType::F32);
                add(&format!("ffn_{part}_exps.input_scale"), &[n], TensorType::F32);
            }
        }
        if extras.shared {
            add("ffn_gate_inp_shexp.weight", &[N_EMBD], TensorType::F32);
            add("ffn_up_shexp.weight", &[N_EMBD, n], ty);
        }
        self
    }

    /// A layer that looks its experts up by the token.
    pub fn hash_layer(&mut self, layer: u32, n_expert_used: u32) -> &mut Self {
        let n_expert = self.n_expert;
        self.layer(layer, n_expert, TensorType::Q8_0, Extras::default());
        let dims = vec![u64::from(n_expert_used), N_VOCAB];
        let name = format!("blk.{layer}.ffn_gate_tid2eid.weight");
        let info = TensorInfo::new(name, dims, TensorType::I32).unwrap();
        let mut random = Random(99);
        let mut row = || {
            let mut ids = random.choose(n_expert_used, n_expert);
            // In random order.
            ids.rotate_left(random.below(n_expert_used as usize));
            ids
        };
        let data = (0..N_VOCAB).flat_map(|_| row()).flat_map(u32::to_le_bytes).collect();
        self.tensors.push((info, data));
        self
    }

    pub fn write(&self, path: &Path) -> Model {
        write_file(path, &self.metadata, &self.tensors);
        Model::open(path).unwrap()
    }

    /// Writes shards that hold these numbers of tensors, and opens the model.
    pub fn write_shards(&self, prefix: &Path, tensors: &[usize]) -> Model {
        assert_eq!(tensors.iter().sum::<usize>(), self.tensors.len());
        let count = tensors.len() as u16;
        let mut rest = self.tensors.as_slice();
        for (index, &n) in (0..count).zip(tensors) {
            let mut metadata = if index == 0 { self.metadata.clone() } else { Metadata::new() };
            metadata.set("split.no", OwnedValue::U16(index));
            metadata.set("split.count", OwnedValue::U16(count));
            metadata.set("split.tensors.count", OwnedValue::I32(self.tensors.len() as i32));
            let (part, next) = rest.split_at(n);
            write_file(&shard_path(prefix, index, count), &metadata, part);
            rest = next;
        }
        Model::open(&shard_path(prefix, 0, count)).unwrap()
    }
}

fn write_file(path: &Path, metadata: &Metadata, tensors: &[(TensorInfo, Vec<u8>)]) {
    let infos: Vec<_> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let layout = Layout::new(metadata, &infos, declared_alignment(metadata).unwrap(), 3).unwrap();
    let mut file = File::create(path).unwrap();
    file.write_all(layout.header()).unwrap();
    for (index, (_, data)) in tensors.iter().enumerate() {
        file.write_all(data).unwrap();
        file.write_all(&vec![0; layout.padding_after(index) as usize]).unwrap();
    }
}

/// A model, its experts, and what a cut of it says of itself.
pub struct Source {
    pub model: Model,
    pub experts: Experts,
    pub provenance: Provenance,
}

impl Source {
    pub fn of(model: Model) -> Self {
        let experts = Experts::read(&model).unwrap();
        let identity = Identity::of(&model, &experts).unwrap();
        let corpora = vec!["dev sha256:00".to_owned()];
        let provenance = Provenance::new(&model, &identity, "frequency", "75%", corpora);
        Self { model, experts, provenance }
    }

    pub fn open(path: &Path) -> Self {
        Self::of(Model::open(path).unwrap())
    }

    pub fn cut<'a>(&'a self, keep: &'a KeptExperts) -> Cut<'a> {
        Cut { model: &self.model, experts: &self.experts, keep, provenance: self.provenance.clone() }
    }

    pub fn prune(&self, keep: &KeptExperts, output: &Path, options: &Options) -> Result<Written, SliceError> {
        prune(&self.cut(keep), output, options, &mut Silent)
    }

    /// A random choice of `k` experts of each layer, or of all where a layer has fewer.
    pub fn random_keep(&self, k: u32, random: &mut Random) -> KeptExperts {
        let choose = |random: &mut Random, n: u32| random.choose(k.min(n), n);
        self.experts.layers.iter().map(|layer| (layer.layer, choose(random, layer.n_expert))).collect()
    }

    pub fn keep_all(&self) -> KeptExperts {
        self.experts.layers.iter().map(|layer| (layer.layer, (0..layer.n_expert).collect())).collect()
    }
}

/// The names in a folder, hidden ones included.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files of a folder with their content.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    names(folder)
        .into_iter()
        .map(|name| folder.join(name))
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}
