//! The numbers that a model's metadata state about its experts, checked against what makes llama.cpp abort.

use std::path::{Path, PathBuf};

use super::MoeError;
use crate::arch::Architecture;
use crate::gguf::{Model, Value, ValueType};

/// The largest number of layers that llama.cpp has room for (`LLAMA_MAX_LAYERS`).
const MAX_LAYERS: u32 = 512;
/// The largest number of experts that llama.cpp has room for (`LLAMA_MAX_EXPERTS`).
pub(super) const MAX_EXPERTS: u32 = 1024;

/// Beginning of the keys of the original ids of experts, one a layer, that a cut adds.
pub(super) const IDS_KEY: &str = "moeslice.expert_ids.";

/// Whether a model says where its experts come from: it was cut.
pub(super) fn carries_ids(model: &Model) -> bool {
    model.metadata().keys().any(|key| key.starts_with(IDS_KEY))
}

/// Groups of experts between which a token's choice is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// `{arch}.expert_group_count`; 1 limits nothing, but llama.cpp then wants two experts or more.
    pub count: u32,
    /// `{arch}.expert_group_used_count`: groups that a token can reach.
    pub used: u32,
}

/// Reads the metadata of one architecture.
pub(super) struct Keys<'a> {
    model: &'a Model,
    pub(super) file: &'a Path,
    pub(super) architecture: String,
}

impl<'a> Keys<'a> {
    pub(super) fn of(model: &'a Model) -> Result<Self, MoeError> {
        Ok(Self { model, file: model.path(), architecture: model.architecture()?.to_owned() })
    }

    /// The full name of an architecture's key.
    pub(super) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// A number of the only type in which llama.cpp reads counts; 0 when the key is absent.
    pub(super) fn count(&self, key: &str) -> Result<u32, MoeError> {
        match self.model.arch_value(key) {
            None => Ok(0),
            Some(Value::U32(count)) => Ok(count),
            Some(value) => Err(self.bad_type(key, value.value_type(), "a u32")),
        }
    }

    /// A u32 for all layers, or an array with one entry a layer.
    fn per_layer(&self, key: &str, n_layer: u32) -> Result<Used, MoeError> {
        let Some(value) = self.model.arch_value(key) else {
            return Err(MoeError::MissingKey { file: self.file(), key: self.name(key) });
        };
        let wanted = "a u32 or an array of u32 or i32";
        match value {
            Value::U32(count) => Ok(Used::All(count)),
            Value::Array(array) if matches!(array.element_type(), ValueType::U32 | ValueType::I32) => {
                if array.len() != u64::from(n_layer) {
                    return Err(MoeError::KeyLength {
                        file: self.file(),
                        key: self.name(key),
                        len: array.len(),
                        n_layer,
                    });
                }
                let negative = || self.bad_type(key, ValueType::Array, "counts that are not negative");
                let counts = array.to_u64s().ok_or_else(negative)?;
                // Elements are of 32-bit types.
                Ok(Used::PerLayer(counts.into_iter().map(|count| count as u32).collect()))
            }
            value => Err(self.bad_type(key, value.value_type(), wanted)),
        }
    }

    fn bad_type(&self, key: &str, found: ValueType, wanted: &'static str) -> MoeError {
        MoeError::KeyType { file: self.file(), key: self.name(key), found: found.to_string(), wanted }
    }

    fn bad_value(&self, key: &str, value: u32, rule: impl Into<String>) -> MoeError {
        MoeError::KeyValue { file: self.file(), key: self.name(key), value: value.into(), rule: rule.into() }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.file.to_owned()
    }
}

/// `{arch}.expert_used_count`.
pub(super) enum Used {
    All(u32),
    PerLayer(Vec<u32>),
}

impl Used {
    pub(super) fn per_layer(&self) -> Option<&[u32]> {
        match self {
            Self::All(_) => None,
            Self::PerLayer(counts) => Some(counts),
        }
    }

    pub(super) fn largest(&self) -> u32 {
        match self {
            Self::All(count) => *count,
            Self::PerLayer(counts) => counts.iter().copied().max().unwrap_or(0),
        }
    }

    /// How many experts the graph selects in a layer.
    pub(super) fn in_layer(&self, layer: u32, own_entry: bool) -> u32 {
        match self {
            Self::All(count) => *count,
            Self::PerLayer(counts) => {
                let at = if own_entry { layer as usize } else { 0 };
                counts.get(at).copied().unwrap_or(0)
            }
        }
    }
}

/// What the metadata of a model with experts say.
pub(super) struct Hyperparameters {
    pub(super) n_layer: u32,
    pub(super) n_mtp: u32,
    pub(super) n_expert: u32,
    pub(super) used: Used,
    pub(super) groups: Option<Groups>,
    pub(super) n_hash: u32,
}

impl Hyperparameters {
    /// Reads and checks the metadata of a model with `n_expert` experts, all of which llama.cpp checks by aborting.
    pub(super) fn read(
        keys: &Keys<'_>,
        arch: Option<&Architecture>,
        n_expert: u32,
    ) -> Result<Self, MoeError> {
        if n_expert > MAX_EXPERTS {
            let rule = format!("llama.cpp has room for {MAX_EXPERTS}");
            return Err(keys.bad_value("expert_count", n_expert, rule));
        }
        let n_layer = keys.count("block_count")?;
        if n_layer == 0 || n_layer > MAX_LAYERS {
            return Err(keys.bad_value("block_count", n_layer, format!("it has to be 1 to {MAX_LAYERS}")));
        }
        let mut n_mtp = keys.count("nextn_predict_layers")?;
        if n_mtp > n_layer {
            let rule = format!("{} is {n_layer}", keys.name("block_count"));
            return Err(keys.bad_value("nextn_predict_layers", n_mtp, rule));
        }
        if arch.is_some_and(|arch| arch.mtp_needs_projection) {
            let projection = format!("blk.{}.nextn.eh_proj.weight", n_layer - n_mtp);
            if keys.model.tensor(&projection).is_none() {
                n_mtp = 0;
            }
        }
        let used = keys.per_layer("expert_used_count", n_layer)?;
        if used.largest() == 0 || used.largest() > n_expert {
            let rule = format!("{} is {n_expert}", keys.name("expert_count"));
            return Err(keys.bad_value("expert_used_count", used.largest(), rule));
        }
        let groups = Self::groups(keys, n_expert)?;
        let n_hash = match arch {
            Some(arch) if arch.hash_layers => keys.count("hash_layer_count")?,
            _ => 0,
        };
        Ok(Self { n_layer, n_mtp, n_expert, used, groups, n_hash })
    }

    fn groups(keys: &Keys<'_>, n_expert: u32) -> Result<Option<Groups>, MoeError> {
        let count = keys.count("expert_group_count")?;
        let used = keys.count("expert_group_used_count")?;
        if count == 0 {
            return Ok(None);
        }
        let experts = format!("{} is {n_expert}", keys.name("expert_count"));
        if count >= n_expert {
            return Err(keys.bad_value(
                "expert_group_count",
                count,
                format!("{experts}, which has to be more"),
            ));
        }
        if count > 1 {
            if !n_expert.is_multiple_of(count) || n_expert / count < 2 {
                let rule = format!("{experts}, and each group needs the same number of 2 or more");
                return Err(keys.bad_value("expert_group_count", count, rule));
            }
            if used == 0 || used >= count {
                let rule = format!("it has to be 1 or more and below the {count} groups");
                return Err(keys.bad_value("expert_group_used_count", used, rule));
            }
        }
        Ok(Some(Groups { count, used }))
    }
}
