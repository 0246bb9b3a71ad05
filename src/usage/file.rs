//! The usage file: how often each expert of each layer was selected, and with how much gate weight.
//!
//! Schema `moeslice.usage/1`. The same model, texts and settings give the same bytes but for `run`.

use super::{ExactSums, ExpertSums, HeldOut, Part};
use crate::digest;
use crate::gguf::MAGIC;
use crate::json::{DocumentError, Format, without_mark};
use crate::moe::{Identity, RouterSketch};
use crate::sys::name_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The value of `schema` in a usage file of this version.
pub const USAGE_SCHEMA: &str = "moeslice.usage/1";

pub(super) const FORMAT: Format =
    Format { name: "usage file", fault: "not a usage file of moeslice", schema: USAGE_SCHEMA };

/// A whole usage file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// `moeslice.usage/1`.
    #[cfg_attr(test, schemars(extend("const" = USAGE_SCHEMA)))]
    pub schema: String,
    /// The model that was profiled.
    pub model: ProfiledModel,
    /// How the figures were got; the only part that differs between two runs over the same input.
    pub run: Run,
    /// The corpora, in the order in which they were given.
    pub corpora: Vec<Corpus>,
    /// One entry for each layer that was counted, ascending.
    pub layers: Vec<LayerUsage>,
}

/// Which model a usage file speaks of.
// The fields of `Identity` again: they are the file's own, which change with its schema alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProfiledModel {
    /// File name, without its folder.
    pub file: String,
    /// `general.architecture`.
    pub architecture: String,
    /// SHA-256 over metadata and tensor table: this very file.
    pub fingerprint: String,
    /// SHA-256 over the router weights: this model, in whatever quantisation.
    pub router_hash: String,
    /// A few weights of each router, by which the model is recognised when its routers were converted to another type;
    /// absent in files of version 0.1.0, for an import, and where a router is of a type that is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_sketch: Option<RouterSketch>,
    /// Number of blocks, MTP blocks included.
    pub n_layer: u32,
    /// Experts of a layer (the largest number, where layers differ).
    pub n_expert: u32,
    /// Experts selected for a token (the largest number, where layers differ).
    pub n_expert_used: u32,
    /// The layers that hold experts, ascending.
    pub expert_layers: Vec<u32>,
}

/// How a usage file came to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of moeslice.
    pub moeslice: String,
    /// Version of the llama.cpp that ran the model; absent for an import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llama_cpp: Option<String>,
    /// Where the figures were taken from when moeslice did not run the model itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<String>,
    /// The devices that the model ran on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Variables of the environment that moeslice set for these devices, as `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Threads on the processor, for batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once, at most.
    pub batch_size: u32,
    /// Tokens computed at once, at most.
    pub ubatch_size: u32,
    /// Whether the windows of a batch shared one store of keys and values, so that tokens of several were computed at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_unified: Option<bool>,
    /// How many times the model was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ubatches: Option<u64>,
    /// Tokens of the largest of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_ubatch: Option<u32>,
    /// The day that the chat templates were told, where conversations were rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_date: Option<String>,
    /// Seconds from the first to the last window, loading not included.
    pub wall_seconds: f64,
    /// Which part of a run this is; absent for a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The runs whose usages were merged into this one; the figures above are then those of the first, and
    /// `wall_seconds` is the sum of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged_from: Vec<Run>,
}

/// A named body of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// The name given on the command line, or the stem of the file or folder.
    pub name: String,
    /// The files that were read, in the order in which they were read.
    pub files: Vec<CorpusFile>,
    /// Tokens that were profiled.
    pub tokens: u64,
    /// Windows that were left out of the counts, so that a cut can be measured on them; absent when all were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
}

/// One text file of a corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CorpusFile {
    /// Path as given, or below the folder that was given.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// Conversations of the file that could not be read or rendered, and were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The counts of one layer: all corpora together, and each apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LayerUsage {
    /// Index of the block.
    pub layer: u32,
    /// Experts selected for a token in this layer.
    pub n_expert_used: u32,
    /// All corpora together.
    pub total: ExpertSums,
    /// Each corpus apart, by name.
    #[serde(deserialize_with = "crate::json::unique_keys::deserialize")]
    pub corpora: BTreeMap<String, ExpertSums>,
    /// The first half of the windows of each corpus, by name; absent where the halves were not counted apart.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::unique_keys::deserialize_some"
    )]
    pub half: Option<BTreeMap<String, ExpertSums>>,
    /// Of a part of a run: what each corpus has in the first half of its windows, and in the second, without rounding.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::unique_keys::deserialize_some"
    )]
    pub exact: Option<BTreeMap<String, [ExactSums; 2]>>,
}

impl ProfiledModel {
    /// The model of this identity, in the file called `file`.
    pub fn new(file: &Path, identity: &Identity) -> Self {
        ProfiledModel {
            file: name_of(file),
            architecture: identity.architecture.clone(),
            fingerprint: identity.fingerprint.clone(),
            router_hash: identity.router_hash.clone(),
            router_sketch: identity.router_sketch.clone(),
            n_layer: identity.n_layer,
            n_expert: identity.n_expert,
            n_expert_used: identity.n_expert_used,
            expert_layers: identity.expert_layers.clone(),
        }
    }
}

impl Corpus {
    /// One hash for the whole corpus: that of its file, or, of several, the SHA-256 of their hashes in hex, in order,
    /// each followed by a newline.
    pub fn sha256(&self) -> String {
        if let [file] = self.files.as_slice() {
            return file.sha256.clone();
        }
        let hashes: String = self.files.iter().flat_map(|file| [file.sha256.as_str(), "\n"]).collect();
        digest::sha256(hashes.as_bytes())
    }
}

/// What is wrong with a usage file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsageError {
    /// The file cannot be read as a usage file.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A GGUF file where a usage file is wanted.
    #[error("{path}: a GGUF file, not a usage file; an imatrix is a usage only together with its model")]
    Gguf {
        /// The file.
        path: PathBuf,
    },
    /// The figures contradict each other: the file was edited or damaged.
    #[error("{path}: the figures do not agree, the file was edited or damaged: {what}")]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// Layer, corpus and numbers.
        what: String,
    },
    /// The usage is that of another model.
    #[error(
        "{usage} is the usage of another model ({profiled}): the routers of {model} differ; profile this model itself"
    )]
    OtherModel {
        /// The usage file.
        usage: PathBuf,
        /// The model file that was profiled.
        profiled: String,
        /// The model file at hand.
        model: PathBuf,
    },
}

impl Usage {
    /// Reads and checks a usage file.
    ///
    /// # Errors
    /// When it cannot be read, is not of this schema, or its figures contradict each other.
    pub fn read(path: &Path) -> Result<Usage, UsageError> {
        let text = FORMAT.read(path)?;
        Self::parse(&text, path)
    }

    /// Parses and checks the bytes of a usage file; `path` serves the messages alone.
    ///
    /// ```
    /// use moeslice::usage::Usage;
    /// use std::path::Path;
    ///
    /// // One layer of three experts, of which a token goes to one.
    /// let text = r#"{
    ///     "schema": "moeslice.usage/1",
    ///     "model": {"file": "m.gguf", "architecture": "qwen3moe", "fingerprint": "sha256:ab", "router_hash": "sha256:cd",
    ///               "n_layer": 1, "n_expert": 3, "n_expert_used": 1, "expert_layers": [0]},
    ///     "run": {"moeslice": "0.1.0", "ctx_size": 512, "batch_size": 512, "ubatch_size": 512, "wall_seconds": 1.0},
    ///     "corpora": [{"name": "dev", "files": [], "tokens": 10}],
    ///     "layers": [{"layer": 0, "n_expert_used": 1,
    ///                 "total": {"n_tokens": 10, "count": [7, 0, 3]},
    ///                 "corpora": {"dev": {"n_tokens": 10, "count": [7, 0, 3]}}}]
    /// }"#;
    /// let usage = Usage::parse(text.as_bytes(), Path::new("u.json"))?;
    /// assert_eq!(usage.layer(0).unwrap().total.count, [7, 0, 3]);
    ///
    /// // Figures that contradict each other are refused.
    /// let edited = text.replace("[7, 0, 3]", "[8, 0, 3]");
    /// assert!(Usage::parse(edited.as_bytes(), Path::new("u.json")).is_err());
    /// # Ok::<(), moeslice::usage::UsageError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Usage::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Usage, UsageError> {
        if without_mark(text).starts_with(MAGIC) {
            return Err(UsageError::Gguf { path: path.into() });
        }
        let usage: Usage = FORMAT.parse(text, path)?;
        usage.check().map_err(|what| UsageError::Inconsistent { path: path.into(), what })?;
        Ok(usage)
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }

    /// The usage of `layer`.
    pub fn layer(&self, layer: u32) -> Option<&LayerUsage> {
        self.layers.iter().find(|entry| entry.layer == layer)
    }
}

impl LayerUsage {
    /// The usage of a layer from that of each corpus; all must have as many experts and the same columns.
    pub fn join(layer: u32, n_expert_used: u32, corpora: BTreeMap<String, ExpertSums>) -> LayerUsage {
        let mut total = corpora.values().next().map_or_else(ExpertSums::default, ExpertSums::zero_like);
        for sums in corpora.values() {
            total.add(sums).expect("what was computed token by token adds up in 64 bits");
        }
        LayerUsage { layer, n_expert_used, total, corpora, half: None, exact: None }
    }
}

#[cfg(test)]
mod tests;
