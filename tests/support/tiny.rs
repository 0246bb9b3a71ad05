//! A tiny model in memory, to be edited and written.

use super::random::Random;
use super::recipe::Recipe;
use moeslice::gguf::{Layout, Metadata, TensorInfo, TensorType, write_model};
use moeslice::llama::{Backend, BlankTensor, Model, Placement};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Metadata, tensors and their data.
#[derive(Clone)]
pub struct TinyModel {
    pub metadata: Metadata,
    pub tensors: Vec<(TensorInfo, Vec<u8>)>,
}

impl TinyModel {
    /// The model of a recipe: llama.cpp says which tensors it has, their numbers are random.
    ///
    /// The file is not written by llama.cpp's own saver, which aborts on some architectures and forgets the tensors and
    /// per-layer arrays of others: the tensors are collected as they are filled, and written by the `gguf` module.
    pub fn of(recipe: &Recipe) -> Result<TinyModel, String> {
        let header = Layout::new(&recipe.metadata, &recipe.typed, 32, 3).map_err(|e| e.to_string())?;
        let mut tensors: Vec<(TensorInfo, Vec<u8>)> = Vec::new();
        let mut fill = |blank: &BlankTensor| {
            let ty = TensorType::from_id(blank.type_id).expect("a type that files use");
            let data = data_of(recipe, blank);
            let info = TensorInfo::new(&blank.name, blank.dims.clone(), ty).expect("a tensor for a file");
            // One tensor can stand in two places, such as embeddings that serve as the output too.
            if !tensors.iter().any(|(other, _)| other.name == info.name) {
                tensors.push((info, data.clone()));
            }
            data
        };
        let backend = Backend::start().map_err(|e| e.to_string())?;
        let cpu = Placement { devices: Some(Vec::new()), ..Placement::default() };
        let model = Model::from_metadata(backend, header.header(), &cpu, &mut fill);
        drop(model.map_err(|e| e.to_string())?);
        tensors.retain(|(info, _)| !recipe.without.iter().any(|pattern| info.name.contains(pattern)));
        Ok(TinyModel { metadata: recipe.metadata.clone(), tensors })
    }

    /// Writes it as a GGUF file.
    pub fn write(&self, path: &Path) {
        let mut out = BufWriter::new(File::create(path).expect("a file"));
        write_model(&mut out, &self.metadata, &self.tensors).expect("a model that can be written");
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&(TensorInfo, Vec<u8>)> {
        self.tensors.iter().find(|(info, _)| info.name == name)
    }

    /// Adds a tensor at the end, its numbers random.
    pub fn add(&mut self, name: &str, dims: &[u64], ty: TensorType) {
        let info = TensorInfo::new(name, dims.to_vec(), ty).expect("a tensor for a file");
        let data = random_bytes(&info, 1);
        self.tensors.push((info, data));
    }

    /// Gives each tensor whose name ends in one of `endings` another type, and new numbers.
    pub fn retype(&mut self, endings: &[&str], ty: TensorType) {
        for (info, data) in &mut self.tensors {
            if endings.iter().any(|ending| info.name.ends_with(ending)) {
                info.ty = ty;
                info.check().expect("rows of whole blocks");
                *data = random_bytes(info, 3);
            }
        }
    }

    /// Splits each `ffn_gate_up_exps` into the two tensors that it stands for.
    pub fn split_gate_up(&mut self) {
        let tensors = std::mem::take(&mut self.tensors);
        for (info, data) in tensors {
            let Some(stem) = info.name.strip_suffix("ffn_gate_up_exps.weight") else {
                self.tensors.push((info, data));
                continue;
            };
            let (rows, n_expert) = (info.dims[1] as usize / 2, info.dims[2] as usize);
            let half = data.len() / n_expert / 2;
            for (part, name) in ["ffn_gate_exps.weight", "ffn_up_exps.weight"].into_iter().enumerate() {
                let bytes = data.chunks_exact(half).skip(part).step_by(2).collect::<Vec<_>>().concat();
                let dims = vec![info.dims[0], rows as u64, n_expert as u64];
                let info = TensorInfo::new(format!("{stem}{name}"), dims, info.ty).expect("half a tensor");
                self.tensors.push((info, bytes));
            }
        }
    }
}

/// Numbers that keep a network alive: activations neither vanish nor grow, and routers are sure of themselves.
fn data_of(recipe: &Recipe, blank: &BlankTensor) -> Vec<u8> {
    let name = blank.name.as_str();
    let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, part)| part);
    let mut random = Random::of(recipe.seed, name);
    if part == "ffn_gate_tid2eid.weight" {
        let used = blank.dims[0] as usize;
        let rows = blank.bytes / (4 * used);
        let ids = (0..rows).flat_map(|_| random.some_of(recipe.n_expert as usize, used));
        return ids.flat_map(u32::to_le_bytes).collect();
    }
    assert_eq!(blank.bytes as u64, 4 * blank.dims.iter().product::<u64>(), "{name} is not F32");
    let fan_in = blank.dims[0] as f32;
    let mut number: Box<dyn FnMut() -> f32> = match part {
        "rope_freqs.weight" => Box::new(|| 1.0),
        "ssm_a" => Box::new(move || -0.2 - random.unit()),
        "ssm_dt.bias" => Box::new(move || random.unit() - 1.0),
        "exp_probs_b.bias" | "exp_probs_b" | "exp_probs_b_vl.bias" => Box::new(move || 0.3 * random.normal()),
        "ffn_gate_inp.weight" => Box::new(move || 2.0 * random.normal() / fan_in.sqrt()),
        "token_embd.weight" => Box::new(move || random.normal()),
        part if part.ends_with("scale") || part.contains("norm") && !part.ends_with(".bias") => {
            Box::new(move || 1.0 + 0.2 * (random.unit() - 0.5))
        }
        part if part.ends_with(".bias") => Box::new(move || 0.1 * random.normal()),
        _ => Box::new(move || random.normal() / fan_in.sqrt()),
    };
    (0..blank.bytes / 4).flat_map(|_| number().to_le_bytes()).collect()
}

/// Random numbers in a tensor of the types that experts are tested in.
pub fn random_bytes(info: &TensorInfo, seed: u64) -> Vec<u8> {
    let mut random = Random::of(seed, &info.name);
    let scale = 1.0 / (info.dims[0] as f32).sqrt();
    let blocks = info.elements() / info.ty.block_elements();
    let mut data = Vec::with_capacity(info.bytes() as usize);
    for _ in 0..blocks {
        match info.ty {
            TensorType::F32 => data.extend((scale * random.normal()).to_le_bytes()),
            // A power of two as the scale of a block, so that no conversion to half precision is needed.
            TensorType::Q4_0 => quantised(&mut data, &mut random, half_power(scale / 4.0), 16),
            TensorType::Q8_0 => quantised(&mut data, &mut random, half_power(scale / 64.0), 32),
            TensorType::MXFP4 => {
                data.push(127_u8.saturating_add_signed((scale / 2.0).log2().floor() as i8));
                data.extend((0..16).map(|_| random.bits() as u8));
            }
            other => panic!("no random numbers of type {other}"),
        }
    }
    data
}

fn quantised(data: &mut Vec<u8>, random: &mut Random, scale: u16, bytes: usize) {
    data.extend(scale.to_le_bytes());
    data.extend((0..bytes).map(|_| random.bits() as u8));
}

/// The half-precision number that is the largest power of two not above `value`.
fn half_power(value: f32) -> u16 {
    let exponent = value.log2().floor() as i32;
    ((exponent + 15).clamp(1, 30) as u16) << 10
}
