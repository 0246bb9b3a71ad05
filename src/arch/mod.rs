//! The architectures that route tokens to experts, one row each.
//!
//! To add an architecture, add one `row` to the table in `table.rs`, in alphabetical order. A row starts from the
//! plain case (router, gate, up and down weights, nothing else) and names what differs from it:
//!
//! ```text
//! row("qwen3next", Always(Softmax), Renormalise::Always).fused().mtp(MtpSupport::Runs),
//! ```

mod table;

use crate::gguf::Model;

/// How router logits become the scores of the experts; the numbers are those of `{arch}.expert_gating_func`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GatingFunction {
    /// 1: softmax over all experts.
    Softmax,
    /// 2: sigmoid of each expert on its own.
    Sigmoid,
    /// 3: experts are selected by their logits, the softmax runs over the selected ones alone.
    SoftmaxOfSelected,
    /// 4: square root of softplus.
    SqrtSoftplus,
}

impl GatingFunction {
    /// The gate that `{arch}.expert_gating_func` names; `None` for 0 (not set) and for numbers llama.cpp lacks.
    pub fn from_key(value: u64) -> Option<Self> {
        match value {
            1 => Some(Self::Softmax),
            2 => Some(Self::Sigmoid),
            3 => Some(Self::SoftmaxOfSelected),
            4 => Some(Self::SqrtSoftplus),
            _ => None,
        }
    }

    /// A name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Sigmoid => "sigmoid",
            Self::SoftmaxOfSelected => "softmax of the selected",
            Self::SqrtSoftplus => "sqrt-softplus",
        }
    }
}

/// Where the gate of an architecture comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSource {
    /// The architecture's code names it; a key in the file has no effect.
    Always(GatingFunction),
    /// `{arch}.expert_gating_func`, and this where the key is absent. `None`: llama.cpp does not run without the key.
    Key(Option<GatingFunction>),
}

impl GateSource {
    /// The gate of a file whose `{arch}.expert_gating_func` is `key`.
    pub fn gate(self, key: Option<u64>) -> Option<GatingFunction> {
        match self {
            Self::Always(gate) => Some(gate),
            Self::Key(default) => key.and_then(GatingFunction::from_key).or(default),
        }
    }
}

/// Whether the weights of the selected experts are divided by their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renormalise {
    /// Always.
    Always,
    /// Never: removing an expert changes the weights of those that stay unless the softmax runs without it.
    Never,
    /// As `{arch}.expert_weights_norm` says; the value is what holds when the key is absent.
    Key(bool),
}

/// Whether a layer with experts has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presence {
    /// llama.cpp does not create it.
    Never,
    /// llama.cpp takes it when the file has it.
    Optional,
    /// llama.cpp does not load a layer without it.
    Required,
}

/// What llama.cpp does with the blocks of a multi-token-prediction head (`{arch}.nextn_predict_layers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MtpSupport {
    /// The architecture has none.
    Never,
    /// Their tensors are checked at load, and their experts never run.
    Stored,
    /// A context of type MTP runs them.
    Runs,
    /// The same when the model has no `{arch}.rope.dimension_sections`; otherwise llama.cpp aborts.
    RunsUnsectioned,
}

impl MtpSupport {
    /// Whether a context of type MTP can run the block `layer` of `model`.
    pub fn runs(self, model: &Model, layer: u32) -> bool {
        let projection = format!("blk.{layer}.nextn.eh_proj.weight");
        let runs = match self {
            Self::Never | Self::Stored => false,
            Self::Runs => true,
            Self::RunsUnsectioned => model.arch_value("rope.dimension_sections").is_none(),
        };
        runs && model.tensor(&projection).is_some()
    }
}

/// The graph node that tells which experts a token went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutingNode {
    /// `ffn_moe_argsort-<layer>`: I32 `[n_expert, n_tokens]`, each row a permutation of the experts, best first.
    Argsort,
    /// No argsort by that name: `ffn_moe_topk-<layer>`, I32 `[n_expert_used, n_tokens]` with the strides of a wider row.
    TopkOnly,
    /// The argsort name occurs twice a layer, once for experts and once for chunks of them.
    ArgsortTwice,
}

/// Which router nodes to overwrite with -inf so that an expert is never selected, as if it had been cut out.
///
/// A node that a layer does not have is skipped. With [`GatingFunction::SoftmaxOfSelected`], `ffn_moe_probs` is another name of
/// the logits, and the only one they keep: it is overwritten too. Layers that take their experts from a hash table have no node to
/// overwrite: there the ids in `ffn_moe_topk-<layer>` are replaced by those of a cut table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mask {
    /// Tried: the masked model computes what the cut model computes.
    Proven(&'static [&'static str]),
    /// Expected from the graph's code; a cut file has not been compared with it.
    Unproven(&'static [&'static str]),
    /// Masking does not stand for cutting, and why.
    Impossible(&'static str),
}

impl Mask {
    /// The nodes, without `-<layer>`; empty when masking is impossible.
    pub fn nodes(self) -> &'static [&'static str] {
        match self {
            Self::Proven(nodes) | Self::Unproven(nodes) => nodes,
            Self::Impossible(_) => &[],
        }
    }
}

/// How a model of the architecture is run to watch its routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfilePass {
    /// Pooled embeddings: every token is routed in every layer and no logits are computed.
    Headless,
    /// Logits have to be computed, and why.
    Logits(&'static str),
    /// Attention is not causal: the whole batch is one ubatch.
    NonCausal,
    /// The model cannot be run on text by itself, and why.
    Impossible(&'static str),
}

/// One architecture of llama.cpp that routes tokens to experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// Value of `general.architecture`.
    pub architecture: &'static str,
    /// Where the gate comes from.
    pub selection: GateSource,
    /// Whether the selected weights are made to add up to one.
    pub renormalise: Renormalise,
    /// `exp_probs_b`: added to the scores for the selection, not for the weights.
    pub bias: Presence,
    /// `exp_probs_b_vl`: the same for image tokens.
    pub bias_vl: Presence,
    /// `ffn_gate_inp.bias` and a bias for each matrix of each expert.
    pub expert_bias: bool,
    /// Gate and up may be one tensor, `ffn_gate_up_exps`.
    pub fused_gate_up: bool,
    /// Experts have no gate matrix.
    pub no_gate: bool,
    /// `{arch}.expert_group_count` limits which experts a token can reach together.
    pub groups: bool,
    /// Layers may hold fewer experts than `{arch}.expert_count`, which then is the largest count.
    pub per_layer_experts: bool,
    /// Each layer selects its own entry of `{arch}.expert_used_count`. Elsewhere all layers select as many as the
    /// first entry says, even where the array has other numbers.
    pub per_layer_used: bool,
    /// The first `{arch}.hash_layer_count` layers look their experts up by token.
    pub hash_layers: bool,
    /// Multi-token-prediction blocks.
    pub mtp: MtpSupport,
    /// `{arch}.nextn_predict_layers` counts only when the first such block has its `nextn.eh_proj.weight`;
    /// without it llama.cpp takes all blocks for trunk layers.
    pub mtp_needs_projection: bool,
    /// Where the routing is read.
    pub routing_node: RoutingNode,
    /// How an expert is masked.
    pub mask: Mask,
    /// How the routing is profiled.
    pub profile: ProfilePass,
    /// A number of experts that the architecture's code treats apart, and what it does there. A cut must not lead
    /// to that number or away from it.
    pub special_count: Option<(u32, &'static str)>,
    /// Why a model of this architecture cannot be cut.
    pub refuse: Option<&'static str>,
    /// What a reader of the table should know besides.
    pub note: Option<&'static str>,
}

/// The nodes that mask an expert wherever the graph names them all.
const LOGITS: &[&str] = &["ffn_moe_logits", "ffn_moe_probs_biased", "ffn_moe_logits_biased"];

/// A row of the plain case; the methods name what differs.
const fn row(architecture: &'static str, selection: GateSource, renormalise: Renormalise) -> Architecture {
    Architecture {
        architecture,
        selection,
        renormalise,
        bias: Presence::Never,
        bias_vl: Presence::Never,
        expert_bias: false,
        fused_gate_up: false,
        no_gate: false,
        groups: true,
        per_layer_experts: false,
        per_layer_used: false,
        hash_layers: false,
        mtp: MtpSupport::Never,
        mtp_needs_projection: false,
        routing_node: RoutingNode::Argsort,
        mask: Mask::Proven(LOGITS),
        profile: ProfilePass::Headless,
        special_count: None,
        refuse: None,
        note: None,
    }
}

impl Architecture {
    const fn bias(mut self, presence: Presence) -> Self {
        self.bias = presence;
        self
    }

    const fn bias_vl(mut self) -> Self {
        self.bias_vl = Presence::Optional;
        self
    }

    const fn expert_bias(mut self) -> Self {
        self.expert_bias = true;
        self
    }

    const fn fused(mut self) -> Self {
        self.fused_gate_up = true;
        self
    }

    const fn no_gate(mut self) -> Self {
        self.no_gate = true;
        self
    }

    const fn no_groups(mut self) -> Self {
        self.groups = false;
        self
    }

    const fn per_layer_experts(mut self) -> Self {
        self.per_layer_experts = true;
        self
    }

    const fn per_layer_used(mut self) -> Self {
        self.per_layer_used = true;
        self
    }

    const fn hash_layers(mut self) -> Self {
        self.hash_layers = true;
        self
    }

    const fn mtp(mut self, mtp: MtpSupport) -> Self {
        self.mtp = mtp;
        self
    }

    const fn mtp_needs_projection(mut self) -> Self {
        self.mtp_needs_projection = true;
        self
    }

    const fn routing(mut self, node: RoutingNode) -> Self {
        self.routing_node = node;
        self
    }

    const fn mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    const fn mask_untried(self) -> Self {
        self.mask(Mask::Unproven(LOGITS))
    }

    const fn profile(mut self, pass: ProfilePass) -> Self {
        self.profile = pass;
        self
    }

    const fn special_count(mut self, count: u32, what: &'static str) -> Self {
        self.special_count = Some((count, what));
        self
    }

    const fn refuse(mut self, why: &'static str) -> Self {
        self.refuse = Some(why);
        self
    }

    const fn note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

/// Every architecture with experts that the table knows, in alphabetical order.
pub fn architectures() -> &'static [Architecture] {
    table::ARCHITECTURES
}

/// The row of an architecture, by the value of `general.architecture`; `None` when the table lacks it.
pub fn architecture(architecture: &str) -> Option<&'static Architecture> {
    let rows = architectures();
    rows.binary_search_by(|row| row.architecture.cmp(architecture)).ok().map(|at| &rows[at])
}

#[cfg(test)]
mod document;
#[cfg(test)]
mod tests;
