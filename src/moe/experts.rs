//! The experts of one model file: which layers have them, in which tensors, how many bytes each.

use std::collections::HashSet;

use super::MoeError;
use super::classified::{ClassifiedTensors, LayerTensor};
use super::hyperparameters::{Groups, Hyperparameters, Keys, carries_ids};
use super::names::{self, Axis, Role};
use crate::arch::{Architecture, GatingFunction, architecture};
use crate::gguf::{Model, Tensor, TensorType};

/// When the experts of a layer run, and how they are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerKind {
    /// Chosen by a router, for every token.
    Trunk,
    /// Looked up by the token in a table.
    Hash,
    /// Part of a multi-token-prediction block, which does not run in an ordinary context.
    Mtp,
}

/// A tensor with an expert axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertTensor {
    /// Index into [`Model::tensors`].
    pub index: usize,
    /// What it is for; [`Role::axis`] is the dimension that counts experts.
    pub role: Role,
    /// Bytes of one expert, which are contiguous: expert `e` begins at `e * slab_bytes`.
    pub slab_bytes: u64,
}

/// A layer with experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertLayer {
    /// Number of the block.
    pub layer: u32,
    /// Experts that it holds.
    pub n_expert: u32,
    /// Experts that llama.cpp's graph selects for a token.
    pub n_expert_used: u32,
    /// When they run.
    pub kind: LayerKind,
    /// Its tensors with an expert axis, in the order of the file.
    pub tensors: Vec<ExpertTensor>,
    /// Index into [`Model::tensors`] of the table token → expert ids, whose values are ids.
    pub hash_table: Option<usize>,
    /// Bytes of one expert in all tensors of the layer.
    pub bytes_per_expert: u64,
}

impl ExpertLayer {
    /// How many experts stay when `k` of the model's are kept: a layer that has fewer stays whole.
    pub fn kept(&self, k: u32) -> u32 {
        k.min(self.n_expert)
    }

    /// Experts that a token can go to: where groups are selected first, those of so many groups as it may use. Behind them in a
    /// sorted row all others are equal, in no order.
    pub fn reachable(&self, groups: Option<Groups>) -> u32 {
        let Some(groups) = groups.filter(|groups| groups.count > 1) else { return self.n_expert };
        let reachable = groups.used.saturating_mul(self.n_expert / groups.count).min(self.n_expert);
        reachable.max(self.n_expert_used)
    }

    /// The tensor with a role.
    pub fn tensor(&self, role: Role) -> Option<&ExpertTensor> {
        self.tensors.iter().find(|tensor| tensor.role == role)
    }
}

/// The experts of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    /// `general.architecture`.
    pub architecture: String,
    /// Its row in the table; without one the general rules hold alone.
    pub arch: Option<&'static Architecture>,
    /// `{arch}.block_count`: all blocks, those of multi-token prediction included.
    pub n_layer: u32,
    /// `{arch}.expert_count`: the experts of a layer, and of the largest layer where they differ.
    pub n_expert: u32,
    /// `{arch}.expert_used_count`, its largest entry when it has one a layer.
    pub n_expert_used: u32,
    /// The entries of `{arch}.expert_used_count` when it has one a layer.
    pub used_per_layer: Option<Vec<u32>>,
    /// Expert groups.
    pub groups: Option<Groups>,
    /// Multi-token-prediction blocks, the last of the blocks.
    pub n_mtp: u32,
    /// Whether llama.cpp has a graph for the first of them.
    pub mtp_runs: bool,
    /// Such blocks that the file has behind these and that a cut leaves out: see [`Experts::without_mtp`].
    pub mtp_dropped: u32,
    /// The gate that routes, by the architecture and by `{arch}.expert_gating_func`; `None` when neither tells.
    pub gate: Option<GatingFunction>,
    /// Whether a layer has shared experts, which run for every token and are not cut.
    pub shared: bool,
    /// Whether a layer has experts that serve a fixed run of others; such a model is not cut.
    pub chunks: bool,
    /// The layers with experts, ascending.
    pub layers: Vec<ExpertLayer>,
}

impl Experts {
    /// Reads the experts of a model, and refuses what would be cut wrongly.
    pub fn read(model: &Model) -> Result<Self, MoeError> {
        let keys = Keys::of(model)?;
        let classified = ClassifiedTensors::of(model);
        if let Some(tensor) = classified.per_expert {
            return Err(MoeError::PerExpertTensors { file: keys.file(), tensor: name_of(tensor) });
        }
        let n_expert = keys.count("expert_count")?;
        match classified.layers.values().next().and_then(|parts| parts.first()) {
            // One expert is what some converters write for a dense model.
            None if n_expert <= 1 => {
                return Err(MoeError::NotMoe { file: keys.file(), architecture: keys.architecture });
            }
            None => {
                let key = keys.name("expert_count");
                return Err(MoeError::NoExpertTensors { file: keys.file(), key, count: n_expert });
            }
            Some(part) if n_expert == 0 => {
                return Err(MoeError::NoExpertCount {
                    file: keys.file(),
                    tensor: name_of(part.tensor),
                    key: keys.name("expert_count"),
                });
            }
            Some(_) => {}
        }
        let arch = architecture(&keys.architecture);
        let hyperparameters = Hyperparameters::read(&keys, arch, n_expert)?;
        let reader = LayerReader { keys: &keys, arch, hyperparameters: &hyperparameters };
        let layers = reader.layers(&classified)?;
        reader.check_unknown(&classified, &layers, carries_ids(model))?;
        let gate_key = model.arch_value("expert_gating_func").and_then(|value| value.as_u64());
        Ok(Self {
            arch,
            n_layer: hyperparameters.n_layer,
            n_expert,
            n_expert_used: hyperparameters.used.largest(),
            used_per_layer: hyperparameters.used.per_layer().map(<[u32]>::to_vec),
            groups: hyperparameters.groups,
            n_mtp: hyperparameters.n_mtp,
            mtp_runs: hyperparameters.n_mtp > 0
                && arch.is_some_and(|arch| {
                    arch.mtp.runs(model, hyperparameters.n_layer - hyperparameters.n_mtp)
                }),
            mtp_dropped: 0,
            gate: match arch {
                Some(arch) => arch.selection.gate(gate_key),
                None => gate_key.and_then(GatingFunction::from_key),
            },
            shared: classified.shared,
            chunks: classified.chunks,
            layers,
            architecture: keys.architecture,
        })
    }

    /// The layer of this number, if it has experts.
    pub fn layer(&self, il: u32) -> Option<&ExpertLayer> {
        self.layers.binary_search_by_key(&il, |layer| layer.layer).ok().map(|at| &self.layers[at])
    }

    /// The MTP layer with experts whose routing can be watched: llama.cpp runs the block, and there is one alone.
    pub fn mtp_that_runs(&self) -> Option<u32> {
        let layer = self.layers.iter().find(|layer| layer.kind == LayerKind::Mtp);
        layer.filter(|_| self.mtp_runs && self.n_mtp == 1).map(|layer| layer.layer)
    }

    /// Bytes of all experts, router rows included.
    pub fn expert_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes_per_expert * u64::from(layer.n_expert)).sum()
    }
}

/// Puts the layers together.
struct LayerReader<'a> {
    keys: &'a Keys<'a>,
    arch: Option<&'static Architecture>,
    hyperparameters: &'a Hyperparameters,
}

impl LayerReader<'_> {
    fn layers(&self, classified: &ClassifiedTensors<'_>) -> Result<Vec<ExpertLayer>, MoeError> {
        if let Some((&layer, parts)) = classified.layers.range(self.hyperparameters.n_layer..).next() {
            return Err(MoeError::LayerRange {
                file: self.keys.file(),
                tensor: name_of(parts[0].tensor),
                layer,
                key: self.keys.name("block_count"),
                n_layer: self.hyperparameters.n_layer,
            });
        }
        classified.layers.iter().map(|(&layer, parts)| self.layer(layer, parts)).collect()
    }

    fn layer(&self, layer: u32, parts: &[LayerTensor<'_>]) -> Result<ExpertLayer, MoeError> {
        let hyperparameters = self.hyperparameters;
        let kind = if layer >= hyperparameters.n_layer - hyperparameters.n_mtp {
            LayerKind::Mtp
        } else if layer < hyperparameters.n_hash {
            LayerKind::Hash
        } else {
            LayerKind::Trunk
        };
        self.check_parts(layer, kind, parts)?;
        let (n_expert, source_of_count) = self.n_expert(kind, parts)?;
        let own_entry = kind != LayerKind::Mtp && self.arch.is_some_and(|arch| arch.per_layer_used);
        let n_expert_used = hyperparameters.used.in_layer(layer, own_entry);
        if n_expert_used == 0 || n_expert_used > n_expert {
            let key = self.keys.name("expert_used_count");
            return Err(MoeError::UsedCount {
                file: self.keys.file(),
                layer,
                key,
                used: n_expert_used,
                n_expert,
            });
        }
        if !own_entry && kind != LayerKind::Mtp && self.arch.is_some() {
            self.check_same_used(layer, n_expert_used)?;
        }
        let mut tensors = Vec::with_capacity(parts.len());
        let mut hash_table = None;
        for part in parts {
            match part.axis {
                Axis::Expert(role) => {
                    let slab_bytes = self.slab_bytes(part.tensor, role, n_expert, &source_of_count)?;
                    tensors.push(ExpertTensor { index: part.index, role, slab_bytes });
                }
                _ => {
                    self.check_hash_table(part.tensor, n_expert_used)?;
                    hash_table = Some(part.index);
                }
            }
        }
        let bytes_per_expert = tensors.iter().map(|tensor| tensor.slab_bytes).sum();
        Ok(ExpertLayer { layer, n_expert, n_expert_used, kind, tensors, hash_table, bytes_per_expert })
    }

    /// Where all layers select as many experts as the first, llama.cpp adds up as many as a layer's own entry says,
    /// and aborts when those are more.
    fn check_same_used(&self, layer: u32, n_expert_used: u32) -> Result<(), MoeError> {
        let stated = self.hyperparameters.used.in_layer(layer, true);
        if stated <= n_expert_used {
            return Ok(());
        }
        let key = self.keys.name("expert_used_count");
        let rule = format!("its entry for layer {layer} must not be above the first, {n_expert_used}");
        Err(MoeError::KeyValue { file: self.keys.file(), key, value: stated.into(), rule })
    }

    /// A layer needs its router, its up and its down weights, each once; a hash layer also its table.
    fn check_parts(&self, layer: u32, kind: LayerKind, parts: &[LayerTensor<'_>]) -> Result<(), MoeError> {
        for (at, part) in parts.iter().enumerate() {
            if let Some(first) = parts[..at].iter().find(|other| other.axis == part.axis) {
                let (first, second) = (name_of(first.tensor), name_of(part.tensor));
                return Err(MoeError::Twice { file: self.keys.file(), first, second });
            }
        }
        let has = |axis| parts.iter().any(|part| part.axis == axis);
        let missing = if !has(Axis::Expert(Role::RouterWeight)) {
            Some("ffn_gate_inp.weight")
        } else if !has(Axis::Expert(Role::Up)) && !has(Axis::Expert(Role::GateUp)) {
            Some("ffn_up_exps.weight")
        } else if !has(Axis::Expert(Role::Down)) {
            Some("ffn_down_exps.weight")
        } else if kind == LayerKind::Hash && !has(Axis::HashTable) {
            Some("ffn_gate_tid2eid.weight")
        } else {
            None
        };
        match missing {
            Some(missing) => Err(MoeError::Incomplete { file: self.keys.file(), layer, missing }),
            None => Ok(()),
        }
    }

    /// The number of experts of a layer, and what tells it.
    fn n_expert(&self, kind: LayerKind, parts: &[LayerTensor<'_>]) -> Result<(u32, String), MoeError> {
        let key = self.keys.name("expert_count");
        let own_count = kind != LayerKind::Mtp && self.arch.is_some_and(|arch| arch.per_layer_experts);
        let router = parts.iter().find(|part| part.axis == Axis::Expert(Role::RouterWeight));
        let Some(router) = router.filter(|_| own_count) else {
            return Ok((self.hyperparameters.n_expert, key));
        };
        let found = router.tensor.info.dims.get(Role::RouterWeight.axis()).copied().unwrap_or(1);
        match u32::try_from(found) {
            Ok(n_expert) if n_expert <= self.hyperparameters.n_expert => {
                Ok((n_expert, name_of(router.tensor)))
            }
            _ => Err(MoeError::ExpertMismatch {
                file: self.keys.file(),
                tensor: name_of(router.tensor),
                found,
                source_of_count: format!("{key}, the largest number of a layer,"),
                expected: self.hyperparameters.n_expert,
            }),
        }
    }

    /// Bytes of one expert of a tensor whose expert axis must count `n_expert`.
    fn slab_bytes(&self, tensor: &Tensor, role: Role, n_expert: u32, source: &str) -> Result<u64, MoeError> {
        let (info, axis) = (&tensor.info, role.axis());
        if info.dims.iter().skip(axis + 1).any(|&dim| dim != 1) {
            let (file, shape) = (self.keys.file(), info.dims.clone());
            return Err(MoeError::Shape { file, tensor: name_of(tensor), shape, axis });
        }
        let found = info.dims.get(axis).copied().unwrap_or(1);
        if found != u64::from(n_expert) {
            return Err(MoeError::ExpertMismatch {
                file: self.keys.file(),
                tensor: name_of(tensor),
                found,
                source_of_count: source.to_owned(),
                expected: n_expert,
            });
        }
        if axis == 0 && info.ty.block_elements() > 1 {
            let ty = info.ty.name();
            return Err(MoeError::PackedAxis { file: self.keys.file(), tensor: name_of(tensor), ty });
        }
        // The expert axis is the outermost and an expert is whole rows, or one element: the division is exact.
        Ok(info.bytes() / u64::from(n_expert))
    }

    fn check_hash_table(&self, tensor: &Tensor, n_expert_used: u32) -> Result<(), MoeError> {
        let info = &tensor.info;
        if info.ty == TensorType::I32 && info.dims.len() == 2 && info.dims[0] == u64::from(n_expert_used) {
            return Ok(());
        }
        Err(MoeError::HashTable {
            file: self.keys.file(),
            tensor: name_of(tensor),
            found: format!("shape {:?} of type {}", info.dims, info.ty),
            wanted: format!("{n_expert_used} expert ids of type I32 a token"),
        })
    }

    /// A tensor of unknown name is no concern of ours unless it may have one entry an expert. That was told when the
    /// model was cut for the first time: from then on it may be as long as there are experts by chance.
    fn check_unknown(
        &self,
        classified: &ClassifiedTensors<'_>,
        layers: &[ExpertLayer],
        cut: bool,
    ) -> Result<(), MoeError> {
        let mut counts: HashSet<u64> = layers.iter().map(|layer| layer.n_expert.into()).collect();
        counts.insert(self.hyperparameters.n_expert.into());
        for tensor in &classified.unknown {
            let (name, dims) = (&tensor.info.name, &tensor.info.dims);
            let outermost = dims.iter().rev().copied().find(|&dim| dim != 1).unwrap_or(1);
            let counts_experts = counts.contains(&outermost) && !cut;
            let why = if names::looks_like_expert(name) {
                "by its name".to_owned()
            } else if counts_experts {
                format!("its outermost dimension is {outermost}, as are the experts")
            } else {
                continue;
            };
            let (file, shape) = (self.keys.file(), dims.clone());
            return Err(MoeError::UnknownTensor { file, tensor: name.clone(), shape, why });
        }
        Ok(())
    }
}

fn name_of(tensor: &Tensor) -> String {
    tensor.info.name.clone()
}

#[cfg(test)]
mod tests;
