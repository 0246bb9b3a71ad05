//! The usage file: how often each expert of each layer was selected, and with how much gate weight.
//!
//! Schema `moeslice.usage/1`. The same model, texts and settings give the same bytes but for `run`.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The value of `schema` in a usage file of this version.
pub const USAGE_SCHEMA: &str = "moeslice.usage/1";

/// A whole usage file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Always [`USAGE_SCHEMA`].
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Number of blocks, NextN blocks included.
    pub n_layer: u32,
    /// Experts of a layer (the largest number, where layers differ).
    pub n_expert: u32,
    /// Experts selected for a token (the largest number, where layers differ).
    pub n_expert_used: u32,
    /// The layers that hold experts, ascending.
    pub expert_layers: Vec<u32>,
}

/// How a usage file came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once.
    pub batch_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// Seconds from the first to the last window, loading not included.
    pub wall_seconds: f64,
}

/// A named body of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// The name given on the command line, or the stem of the file or folder.
    pub name: String,
    /// The files that were read, in the order in which they were read.
    pub files: Vec<CorpusFile>,
    /// Tokens that were profiled.
    pub tokens: u64,
}

/// One text file of a corpus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusFile {
    /// Path as given, or below the folder that was given.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
}

/// The counts of one layer: all corpora together, and each apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerUsage {
    /// Index of the block.
    pub layer: u32,
    /// Experts selected for a token in this layer.
    pub n_expert_used: u32,
    /// All corpora together.
    pub total: ExpertSums,
    /// Each corpus apart, by name.
    pub corpora: BTreeMap<String, ExpertSums>,
}

/// Sums over the tokens that a layer routed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertSums {
    /// Tokens that the layer routed.
    pub n_tokens: u64,
    /// `[n_expert]`: tokens for which the expert was selected.
    pub count: Vec<u64>,
    /// `[n_expert]`: sum of the expert's final gate weights over those tokens; absent when only counts were collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Vec<f64>>,
}

/// How a model relates to a usage file that is to be used with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// The very file that was profiled (or a split or merged copy of it).
    Same,
    /// Other bytes with the same routers: another quantisation of the same model.
    SameRouters,
}

/// What is wrong with a usage file.
#[derive(Debug, Error)]
pub enum UsageError {
    /// The file cannot be read.
    #[error("{path}: cannot read the usage file: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not JSON of this schema.
    #[error("{path}: not a usage file of moeslice: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        source: serde_json::Error,
    },
    /// Another schema or version.
    #[error("{path}: schema is {found:?}, this moeslice reads {USAGE_SCHEMA:?}")]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema named in the file.
        found: String,
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
        let text = std::fs::read(path).map_err(|source| UsageError::Read { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Parses and checks the bytes of a usage file; `path` serves the messages alone.
    ///
    /// # Errors
    /// As [`Usage::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Usage, UsageError> {
        /// Reads the schema first, so that another version is told apart from damage.
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let parse = |source| UsageError::Parse { path: path.into(), source };
        let head: Head = serde_json::from_slice(text).map_err(parse)?;
        if head.schema != USAGE_SCHEMA {
            return Err(UsageError::Schema { path: path.into(), found: head.schema });
        }
        let usage: Usage = serde_json::from_slice(text).map_err(parse)?;
        usage.check().map_err(|what| UsageError::Inconsistent { path: path.into(), what })?;
        Ok(usage)
    }

    /// The file's text: pretty-printed JSON with a final newline.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("a usage has no maps with keys that JSON cannot hold");
        text.push('\n');
        text
    }

    /// The usage of `layer`.
    pub fn layer(&self, layer: u32) -> Option<&LayerUsage> {
        self.layers.iter().find(|entry| entry.layer == layer)
    }

    /// Checks that the figures agree with each other.
    ///
    /// # Errors
    /// Says which layer, corpus and numbers contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for corpus in &self.corpora {
            if !names.insert(corpus.name.as_str()) {
                return Err(format!("corpus {:?} is listed twice", corpus.name));
            }
        }
        if self.layers.is_empty() {
            return Err("no layer was counted".into());
        }
        if !self.layers.windows(2).all(|pair| pair[0].layer < pair[1].layer) {
            return Err("layers are not in ascending order".into());
        }
        for layer in &self.layers {
            if !self.model.expert_layers.contains(&layer.layer) {
                return Err(format!("layer {} is not among model.expert_layers", layer.layer));
            }
            layer.check(&names)?;
        }
        Ok(())
    }
}

impl LayerUsage {
    /// The usage of a layer from that of each corpus; all must have as many experts and the same columns.
    pub fn join(layer: u32, n_expert_used: u32, corpora: BTreeMap<String, ExpertSums>) -> LayerUsage {
        let (n_expert, with_weights) =
            corpora.values().next().map_or((0, false), |sums| (sums.count.len(), sums.weight.is_some()));
        let mut total = ExpertSums::zero(n_expert, with_weights);
        for sums in corpora.values() {
            total.add(sums).expect("counts of tokens that were computed fit into 64 bits");
        }
        LayerUsage { layer, n_expert_used, total, corpora }
    }

    fn check(&self, names: &BTreeSet<&str>) -> Result<(), String> {
        let of = |corpus: &str| format!("layer {}, {corpus}", self.layer);
        self.total.check(self.n_expert_used).map_err(|what| format!("{}: {what}", of("total")))?;
        if !self.corpora.keys().map(String::as_str).eq(names.iter().copied()) {
            return Err(format!("layer {}: its corpora are not those listed under corpora", self.layer));
        }
        let n_expert = self.total.count.len();
        let mut joined = ExpertSums::zero(n_expert, self.total.weight.is_some());
        for (name, sums) in &self.corpora {
            sums.check(self.n_expert_used).map_err(|what| format!("{}: {what}", of(name)))?;
            if sums.count.len() != n_expert || sums.weight.is_some() != self.total.weight.is_some() {
                return Err(format!("{}: not as many experts, or other columns, than in total", of(name)));
            }
            joined.add(sums).ok_or_else(|| format!("{}: counts overflow", of(name)))?;
        }
        if joined.n_tokens != self.total.n_tokens || joined.count != self.total.count {
            return Err(format!("layer {}: the corpora do not add up to the total", self.layer));
        }
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        match (&joined.weight, &self.total.weight) {
            (Some(a), Some(b)) if !a.iter().zip(b).all(|(a, b)| close(a, b)) => Err(format!(
                "layer {}: the gate weights of the corpora do not add up to the total",
                self.layer
            )),
            _ => Ok(()),
        }
    }
}

impl ExpertSums {
    /// Sums of nothing, for `n_expert` experts.
    pub fn zero(n_expert: usize, with_weights: bool) -> Self {
        ExpertSums {
            n_tokens: 0,
            count: vec![0; n_expert],
            weight: with_weights.then(|| vec![0.0; n_expert]),
        }
    }

    /// Adds `other`, which has as many experts; `None` when a count overflows.
    #[must_use = "None means that nothing useful was added"]
    pub fn add(&mut self, other: &ExpertSums) -> Option<()> {
        self.n_tokens = self.n_tokens.checked_add(other.n_tokens)?;
        for (sum, more) in self.count.iter_mut().zip(&other.count) {
            *sum = sum.checked_add(*more)?;
        }
        if let (Some(sums), Some(more)) = (&mut self.weight, &other.weight) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        Some(())
    }

    fn check(&self, n_expert_used: u32) -> Result<(), String> {
        let sum = self.count.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
        let wanted = self.n_tokens.checked_mul(u64::from(n_expert_used));
        match (sum, wanted) {
            (Some(sum), Some(wanted)) if sum == wanted => {}
            (Some(sum), _) => {
                return Err(format!(
                    "counts add up to {sum}, not {} tokens × {n_expert_used} experts",
                    self.n_tokens
                ));
            }
            (None, _) => return Err("counts overflow".into()),
        }
        if let Some(expert) = self.count.iter().position(|&count| count > self.n_tokens) {
            return Err(format!("expert {expert} was selected more often than there were tokens"));
        }
        match &self.weight {
            Some(weight) if weight.len() != self.count.len() => {
                Err(format!("{} gate weights for {} experts", weight.len(), self.count.len()))
            }
            Some(weight) => match weight.iter().position(|value| !value.is_finite()) {
                Some(expert) => Err(format!("the gate weight of expert {expert} is not a number")),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}
