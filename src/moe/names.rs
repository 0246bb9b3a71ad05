//! The tensor names of a block, each classed once.
//!
//! A name is matched whole after `blk.<layer>.`, never by a part of it: `ffn_gate_inp.weight` is a router,
//! `ffn_gate_inp_shexp.weight` is not, and `ffn_gate_inp.scale` has a number a channel.

/// What a tensor with an expert axis is for.
///
/// The expert axis is the outermost dimension: one expert is one contiguous run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Role {
    /// `ffn_gate_inp.weight` `[n_embd, n_expert]`: one row of router weights an expert.
    RouterWeight,
    /// `ffn_gate_inp.bias` `[n_expert]`.
    RouterBias,
    /// `exp_probs_b.bias` (hy_v3: `exp_probs_b`) `[n_expert]`: added for the selection only.
    SelectionBias,
    /// `exp_probs_b_vl.bias` `[n_expert]`: the same for image tokens.
    SelectionBiasVl,
    /// `ffn_gate_exps.weight` `[n_embd, n_ff, n_expert]`.
    Gate,
    /// `ffn_up_exps.weight` `[n_embd, n_ff, n_expert]`.
    Up,
    /// `ffn_gate_up_exps.weight` `[n_embd, 2 n_ff, n_expert]`.
    GateUp,
    /// `ffn_down_exps.weight` `[n_ff, n_embd, n_expert]`.
    Down,
    /// `ffn_gate_exps.bias` `[n_ff, n_expert]`.
    GateBias,
    /// `ffn_up_exps.bias` `[n_ff, n_expert]`.
    UpBias,
    /// `ffn_down_exps.bias` `[n_embd, n_expert]`.
    DownBias,
    /// `ffn_gate_exps.scale` `[n_expert]`.
    GateScale,
    /// `ffn_up_exps.scale` `[n_expert]`.
    UpScale,
    /// `ffn_down_exps.scale` `[n_expert]`.
    DownScale,
    /// `ffn_gate_exps.input_scale` `[n_expert]`.
    GateInputScale,
    /// `ffn_up_exps.input_scale` `[n_expert]`.
    UpInputScale,
    /// `ffn_down_exps.input_scale` `[n_expert]`.
    DownInputScale,
}

impl Role {
    /// Index of the expert axis among the dimensions, innermost first. llama.cpp takes further dimensions of size 1.
    pub fn axis(self) -> usize {
        match self {
            Self::Gate | Self::Up | Self::GateUp | Self::Down => 2,
            Self::RouterWeight | Self::GateBias | Self::UpBias | Self::DownBias => 1,
            _ => 0,
        }
    }
}

/// What the experts are to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// The outermost dimension counts the experts: cut it.
    Expert(Role),
    /// `ffn_gate_tid2eid.weight` `[n_expert_used, n_vocab]`: the values are expert ids. Replace them, cut nothing.
    HashTable,
    /// `ffn_*_chexps.weight` `[.., .., n_expert / experts_per_group]`: experts that serve a fixed run of others.
    Chunk,
    /// `ffn_gate.<expert>.weight` and its like: one tensor an expert, a form that llama.cpp no longer loads.
    PerExpert,
    /// A known tensor without an expert axis: copy it whatever its size.
    Other,
    /// Not a name that llama.cpp v0.8.0 gives to a tensor of a block.
    Unknown,
}

/// Names with an expert axis. Nothing else with these stems is loaded (no bias or scale of a fused tensor).
const EXPERT: &[(&str, Role)] = &[
    ("exp_probs_b", Role::SelectionBias),
    ("exp_probs_b.bias", Role::SelectionBias),
    ("exp_probs_b_vl.bias", Role::SelectionBiasVl),
    ("ffn_down_exps.bias", Role::DownBias),
    ("ffn_down_exps.input_scale", Role::DownInputScale),
    ("ffn_down_exps.scale", Role::DownScale),
    ("ffn_down_exps.weight", Role::Down),
    ("ffn_gate_exps.bias", Role::GateBias),
    ("ffn_gate_exps.input_scale", Role::GateInputScale),
    ("ffn_gate_exps.scale", Role::GateScale),
    ("ffn_gate_exps.weight", Role::Gate),
    ("ffn_gate_inp.bias", Role::RouterBias),
    ("ffn_gate_inp.weight", Role::RouterWeight),
    ("ffn_gate_up_exps.weight", Role::GateUp),
    ("ffn_up_exps.bias", Role::UpBias),
    ("ffn_up_exps.input_scale", Role::UpInputScale),
    ("ffn_up_exps.scale", Role::UpScale),
    ("ffn_up_exps.weight", Role::Up),
];

/// Names that stand alone: what the experts are to them cannot be told from the stem.
const SINGLE: &[(&str, Axis)] = &[
    ("ffn_down_chexps.weight", Axis::Chunk),
    ("ffn_gate_chexps.weight", Axis::Chunk),
    ("ffn_up_chexps.weight", Axis::Chunk),
    ("ffn_gate_inp.scale", Axis::Other),
    ("ffn_gate_tid2eid.weight", Axis::HashTable),
];

/// What can follow the stem of a tensor without an expert axis; the two of LoRA have adapters outermost.
const ENDINGS: &[&str] = &[".weight", ".bias", ".scale", ".input_scale", ".scales", ".lora_a", ".lora_b"];

/// Stems of the tensors without an expert axis, as `LLM_TENSOR_NAMES` lists them.
#[rustfmt::skip]
const OTHER: &[&str] = &[
    // attention
    "attn_compressor_ape", "attn_compressor_gate", "attn_compressor_kv", "attn_compressor_norm",
    "attn_conv_base", "attn_conv_proj", "attn_gate", "attn_k", "attn_k_b", "attn_k_norm", "attn_kv",
    "attn_kv_a_mqa", "attn_kv_a_norm", "attn_kv_b", "attn_norm", "attn_norm_2", "attn_output", "attn_output_a",
    "attn_output_b", "attn_output_norm", "attn_q", "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_q_norm",
    "attn_qkv", "attn_qkv_gate", "attn_res_score", "attn_resid_alpha", "attn_resid_beta", "attn_resid_scale",
    "attn_rot_embd", "attn_sinks", "attn_ssmax", "attn_sub_norm", "attn_v", "attn_v_b", "attn_v_exps",
    "attn_v_gate", "attn_ve_gate", "attn_xsa_alpha", "post_attention_norm",
    "indexer.attn_k", "indexer.attn_q_b", "indexer.k_norm", "indexer.k_proj", "indexer.proj", "indexer.q_norm",
    "indexer.q_proj", "indexer.ssmax", "indexer_compressor_ape", "indexer_compressor_gate",
    "indexer_compressor_kv", "indexer_compressor_norm", "vis_attn_output", "vis_attn_qkv",
    // dense, shared and latent parts of the feed-forward network
    "ffn.act", "ffn_conv_base", "ffn_conv_proj", "ffn_down", "ffn_down_shexp", "ffn_gate", "ffn_gate_inp_shexp",
    "ffn_gate_shexp", "ffn_latent_down", "ffn_latent_up", "ffn_norm", "ffn_norm_ada_down", "ffn_norm_ada_up",
    "ffn_norm_exps", "ffn_post_exp_norm", "ffn_pre_exp_norm", "ffn_res_score", "ffn_resid_alpha",
    "ffn_resid_beta", "ffn_resid_scale", "ffn_routed_down", "ffn_routed_norm", "ffn_routed_up", "ffn_sub_norm",
    "ffn_up", "ffn_up_shexp", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2",
    "vis_down", "vis_gate", "vis_up",
    // residual streams, per-layer inputs, n-gram memories
    "altup_correct_coef", "altup_correct_scale", "altup_predict_coef", "altup_router", "altup_router_norm",
    "engram_gate", "engram_kv", "hc_attn_base", "hc_attn_down", "hc_attn_down_inject", "hc_attn_fn",
    "hc_attn_inject", "hc_attn_norm", "hc_attn_scale", "hc_attn_up", "hc_ffn_base", "hc_ffn_down",
    "hc_ffn_down_inject", "hc_ffn_fn", "hc_ffn_inject", "hc_ffn_norm", "hc_ffn_scale", "hc_ffn_up", "inp_gate",
    "laurel_l", "laurel_post_norm", "laurel_r", "layer_output_norm", "layer_output_scale", "mudd_down", "mudd_up",
    "ple_conv1d", "ple_key", "ple_norm_conv", "ple_norm_key", "ple_norm_query", "ple_value", "post_norm", "proj",
    // multi-token prediction
    "nextn.eh_proj", "nextn.embed_tokens", "nextn.enorm", "nextn.hc_head_down", "nextn.hc_head_norm",
    "nextn.hc_head_up", "nextn.hnorm", "nextn.shared_head_head", "nextn.shared_head_norm",
    // convolutions, state spaces, RWKV
    "channel_mix_key", "channel_mix_lerp_k", "channel_mix_lerp_r", "channel_mix_receptance", "channel_mix_value",
    "shortconv.conv", "shortconv.in_proj", "shortconv.out_proj",
    "ssm_a", "ssm_alpha", "ssm_b_norm", "ssm_ba", "ssm_beta", "ssm_beta_alpha", "ssm_c_norm", "ssm_conv1d",
    "ssm_conv1d_k", "ssm_conv1d_q", "ssm_conv1d_v", "ssm_d", "ssm_dt", "ssm_dt_norm", "ssm_f_a", "ssm_f_b", "ssm_g",
    "ssm_g_a", "ssm_g_b", "ssm_in", "ssm_norm", "ssm_out", "ssm_x",
    "time_mix_a0", "time_mix_a1", "time_mix_a2", "time_mix_decay", "time_mix_decay_w1", "time_mix_decay_w2",
    "time_mix_first", "time_mix_g1", "time_mix_g2", "time_mix_gate", "time_mix_k_a", "time_mix_k_k",
    "time_mix_key", "time_mix_lerp_fused", "time_mix_lerp_g", "time_mix_lerp_k", "time_mix_lerp_r",
    "time_mix_lerp_v", "time_mix_lerp_w", "time_mix_lerp_x", "time_mix_ln", "time_mix_output", "time_mix_r_k",
    "time_mix_receptance", "time_mix_v0", "time_mix_v1", "time_mix_v2", "time_mix_value", "time_mix_w0",
    "time_mix_w1", "time_mix_w2",
];

/// Parts of a name that only expert tensors have, listed or not.
const MARKS: &[&str] = &["exps", "exp_probs", "gate_inp"];

/// What the experts are to the tensor of this name.
///
/// Tensors outside of the blocks are [`Axis::Other`], unless their name reads like that of an expert tensor: those of
/// a block that is not numbered as llama.cpp numbers its blocks are [`Axis::Unknown`] as well.
pub(super) fn classify(name: &str) -> Axis {
    let Some((_, part)) = split_block(name) else {
        return if name.starts_with("blk.") || looks_like_expert(name) { Axis::Unknown } else { Axis::Other };
    };
    if let Ok(at) = EXPERT.binary_search_by(|(known, _)| known.cmp(&part)) {
        return Axis::Expert(EXPERT[at].1);
    }
    if let Some((_, axis)) = SINGLE.iter().find(|(known, _)| *known == part) {
        return *axis;
    }
    let stem = ENDINGS.iter().find_map(|ending| part.strip_suffix(ending)).unwrap_or(part);
    if OTHER.contains(&stem) {
        return Axis::Other;
    }
    if is_per_expert(stem) { Axis::PerExpert } else { Axis::Unknown }
}

/// Layer and remainder of `blk.<layer>.<remainder>`, the layer in the one way in which llama.cpp writes it.
pub(super) fn split_block(name: &str) -> Option<(u32, &str)> {
    let (digits, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if !plain || part.is_empty() {
        return None;
    }
    Some((digits.parse().ok()?, part))
}

/// Whether an unlisted name reads like that of an expert tensor.
pub(super) fn looks_like_expert(name: &str) -> bool {
    MARKS.iter().any(|mark| name.contains(mark))
}

fn is_per_expert(stem: &str) -> bool {
    ["ffn_gate.", "ffn_up.", "ffn_down."].iter().any(|start| {
        stem.strip_prefix(start).is_some_and(|e| !e.is_empty() && e.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests;
