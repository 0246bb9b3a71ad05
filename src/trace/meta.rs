//! What a trace says of itself, once, before its first token.

use super::TraceError;
use crate::moe::{ExpertLayer, Experts, Identity, Role};
use crate::usage::CorpusFile;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The name and version of the form.
pub const TRACE_SCHEMA: &str = "moeslice.trace/1";
/// Layers of a trace, at most (`LLAMA_MAX_LAYERS`).
const MAX_LAYERS: usize = 512;
/// Experts of a layer, at most (`LLAMA_MAX_EXPERTS`).
pub(super) const MAX_EXPERTS: u32 = 1024;

/// What is known of a whole trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TraceMeta {
    /// [`TRACE_SCHEMA`].
    pub schema: String,
    /// The model, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<TracedModel>,
    /// The layers whose routing was recorded, in the order of the columns.
    pub layers: Vec<TraceLayer>,
    /// Candidates of each token and layer, the selected ones first.
    pub candidates: u32,
    /// What the router values are.
    pub router_values: RouterValues,
    /// How gate weights come from the router's output, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gating: Option<String>,
    /// How the trace was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<TraceRun>,
    /// The texts, in the order of their sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corpora: Vec<TracedCorpus>,
}

/// The model of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedModel {
    /// File name.
    pub file: String,
    /// `general.architecture`.
    pub architecture: String,
    /// See [`Identity::fingerprint`].
    pub fingerprint: String,
    /// See [`Identity::router_hash`].
    pub router_hash: String,
}

/// A layer of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceLayer {
    /// Number of the block.
    pub layer: u32,
    /// Experts of the layer.
    pub n_expert: u32,
    /// Experts that a token goes to.
    pub n_expert_used: u32,
    /// Bytes of one expert in each of the tensors that go with it when experts are offloaded (`ffn_*_exps`: weights,
    /// biases, scales). Empty when unknown.
    #[serde(default)]
    pub slabs: Vec<u64>,
}

/// A corpus of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedCorpus {
    /// Its name.
    pub name: String,
    /// The first of its sessions; the next corpus begins where it ends.
    pub first_session: u32,
    /// Its files.
    pub files: Vec<CorpusFile>,
}

/// How a trace was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceRun {
    /// Version of moeslice.
    pub moeslice: String,
    /// Version of llama.cpp.
    pub llama_cpp: String,
    /// What it ran on.
    pub devices: Vec<String>,
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// Tokens generated behind each text, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<u32>,
    /// How generated tokens were chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// What the router values of a trace are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RouterValues {
    /// Router logits; the experts with the greatest are selected.
    Logits,
    /// The values that are sorted to select: gate probabilities plus a bias.
    Selection,
    /// There are none.
    None,
}

impl TraceLayer {
    /// A layer of a model file.
    pub fn of(layer: &ExpertLayer) -> TraceLayer {
        let moves = |role: Role| {
            !matches!(
                role,
                Role::RouterWeight | Role::RouterBias | Role::SelectionBias | Role::SelectionBiasVl
            )
        };
        let slabs = layer.tensors.iter().filter(|tensor| moves(tensor.role)).map(|tensor| tensor.slab_bytes);
        TraceLayer {
            layer: layer.layer,
            n_expert: layer.n_expert,
            n_expert_used: layer.n_expert_used,
            slabs: slabs.collect(),
        }
    }

    /// Bytes of one expert, 0 when unknown.
    pub fn bytes_per_expert(&self) -> u64 {
        self.slabs.iter().sum()
    }
}

impl TracedModel {
    /// The model in `file`.
    pub fn new(file: &Path, identity: &Identity) -> TracedModel {
        TracedModel {
            file: file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
            architecture: identity.architecture.clone(),
            fingerprint: identity.fingerprint.clone(),
            router_hash: identity.router_hash.clone(),
        }
    }
}

impl TraceMeta {
    /// A trace of `layers` with so many candidates each.
    pub fn new(layers: Vec<TraceLayer>, candidates: u32, router_values: RouterValues) -> TraceMeta {
        TraceMeta {
            schema: TRACE_SCHEMA.to_owned(),
            model: None,
            layers,
            candidates,
            router_values,
            gating: None,
            run: None,
            corpora: Vec::new(),
        }
    }

    /// Ids of one row.
    pub fn row_ids(&self) -> usize {
        self.layers.len() * self.candidates as usize
    }

    /// Whether every layer states the bytes of its experts.
    pub fn has_bytes(&self) -> bool {
        self.layers.iter().all(|layer| layer.bytes_per_expert() > 0)
    }

    /// Takes the bytes of each expert from a model file.
    ///
    /// # Errors
    /// When the layers are not those of the trace.
    pub fn take_bytes(&mut self, file: &Path, experts: &Experts) -> Result<(), TraceError> {
        // A trace that does not name its model may have seen fewer experts than there are.
        let exact = self.model.is_some();
        for layer in &mut self.layers {
            let found = experts.layer(layer.layer).filter(|found| {
                let others = found.n_expert.checked_sub(layer.n_expert);
                others.is_some_and(|others| others == 0 || !exact)
                    && found.n_expert_used == layer.n_expert_used
            });
            let Some(found) = found else {
                return Err(TraceError::OtherModel { file: file.to_owned(), layer: layer.layer });
            };
            let expert_bytes = TraceLayer::of(found);
            layer.n_expert = found.n_expert;
            layer.slabs = expert_bytes.slabs;
        }
        Ok(())
    }

    /// What is to be said when the trace was recorded with another model than the one at hand.
    pub fn model_remark(&self, file: &Path, identity: &Identity) -> Option<String> {
        let recorded = self.model.as_ref().filter(|model| model.router_hash != identity.router_hash)?;
        let (file, recorded) = (file.display(), &recorded.file);
        Some(format!(
            "the trace was recorded with {recorded}, and {file} has other routers: the routing is that of the one, the bytes are those of the other"
        ))
    }

    /// Checks that the numbers are possible.
    pub(super) fn check(&self, path: &Path) -> Result<(), TraceError> {
        let bad = |what: String| TraceError::Header { path: path.to_owned(), what };
        if self.schema != TRACE_SCHEMA {
            return Err(bad(format!(
                "its schema is {:?}, and this version reads {TRACE_SCHEMA:?}",
                self.schema
            )));
        }
        if self.layers.is_empty() || self.layers.len() > MAX_LAYERS {
            return Err(bad(format!(
                "it has {} layers, and 1 to {MAX_LAYERS} are possible",
                self.layers.len()
            )));
        }
        for layer in &self.layers {
            let (n, used, il) = (layer.n_expert, layer.n_expert_used, layer.layer);
            if n > MAX_EXPERTS || used == 0 || used > n {
                return Err(bad(format!("layer {il} has {n} experts of which {used} are used")));
            }
            if used > self.candidates {
                return Err(bad(format!("layer {il} uses {used} experts of {} candidates", self.candidates)));
            }
            if layer
                .slabs
                .iter()
                .try_fold(0_u64, |sum, slab| sum.checked_add(*slab))
                .is_none_or(|sum| sum > 1 << 40)
            {
                return Err(bad(format!("the bytes of an expert of layer {il} are more than a TiB")));
            }
        }
        if self.layers.windows(2).any(|pair| pair[0].layer >= pair[1].layer) {
            return Err(bad("its layers do not ascend".to_owned()));
        }
        if self.candidates > MAX_EXPERTS {
            return Err(bad(format!(
                "it has {} candidates, and at most {MAX_EXPERTS} are possible",
                self.candidates
            )));
        }
        Ok(())
    }
}
