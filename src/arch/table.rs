//! One row an architecture, read from llama.cpp v0.8.0: `src/llama-arch.cpp` for the names, `src/models/*.cpp` for
//! the tensors and the routing, `build_moe_ffn` in `src/llama-graph.cpp` for what the routing does.

use super::GateSource::{Always, Key};
use super::GatingFunction::{Sigmoid, Softmax, SoftmaxOfSelected, SqrtSoftplus};
use super::Presence::{Optional, Required};
use super::{Architecture, Mask, MtpSupport, ProfilePass, Renormalise, RoutingNode, row};

/// `{arch}.expert_weights_norm`, off when absent.
const KEY: Renormalise = Renormalise::Key(false);
/// The weights are always made to add up to one.
const NORM: Renormalise = Renormalise::Always;
/// The weights stay as the gate gave them.
const RAW: Renormalise = Renormalise::Never;

const WIDE_OUTPUT: &str =
    "the embedding that llama.cpp pools is wider than the model's own, and decoding aborts on it";

#[rustfmt::skip]
pub(super) static ARCHITECTURES: &[Architecture] = &[
    row("afmoe", Key(Some(Sigmoid)), KEY).bias(Required),
    row("arctic", Always(Softmax), NORM),
    row("bailingmoe", Always(Softmax), KEY),
    row("bailingmoe2", Key(None), KEY).bias(Optional).mtp(MtpSupport::Stored),
    row("bailingmoe3", Key(None), KEY).bias(Required).mtp(MtpSupport::Runs),
    row("beam", Key(Some(Sigmoid)), KEY).bias(Required),
    row("cohere2moe", Key(Some(Sigmoid)), KEY).fused().mtp(MtpSupport::Runs),
    row("dbrx", Always(Softmax), NORM),
    row("deepseek", Always(Softmax), RAW),
    row("deepseek2", Key(Some(Softmax)), KEY).bias(Optional).fused().mtp(MtpSupport::Runs)
        .note("a file with 47 or 48 layers, a vocabulary of 154,880 and no gating key is taken for sigmoid"),
    row("deepseek2-ocr", Key(Some(Softmax)), KEY).bias(Optional).fused(),
    row("deepseek32", Key(None), KEY).bias(Optional).mtp(MtpSupport::Runs),
    row("deepseek4", Always(SqrtSoftplus), KEY).bias(Required).bias_vl().hash_layers()
        .mtp(MtpSupport::Runs).mtp_needs_projection().profile(ProfilePass::Logits(WIDE_OUTPUT))
        .note("hash layers have a table token → experts in place of the selection bias"),
    row("deepseek41", Always(SqrtSoftplus), KEY).bias(Required).bias_vl().mtp_needs_projection(),
    row("dflash", Always(SqrtSoftplus), KEY).bias(Required).mask_untried()
        .profile(ProfilePass::Impossible("it is a draft model that is fed with another model's features")),
    row("dots1", Key(None), KEY).bias(Optional),
    row("dots3note", Key(None), KEY).bias(Required).mtp(MtpSupport::Stored),
    row("ernie4_5-moe", Always(Softmax), NORM).bias(Optional),
    row("exaone-moe", Key(None), KEY).bias(Optional).mtp(MtpSupport::Stored),
    row("flint", Key(None), KEY).bias(Optional),
    row("gemma4", Always(Softmax), NORM).fused()
        .note("ffn_gate_inp.scale scales the router's input, one number a channel"),
    row("glm-dsa", Key(Some(Sigmoid)), KEY).bias(Optional).mtp(MtpSupport::Runs),
    row("glm4moe", Key(Some(Sigmoid)), KEY).bias(Required).mtp(MtpSupport::RunsUnsectioned),
    row("glm5-next", Key(Some(Sigmoid)), KEY).bias(Required).mtp(MtpSupport::Runs),
    row("gpt-oss", Always(SoftmaxOfSelected), RAW).expert_bias(),
    row("granite", Always(Softmax), NORM),
    row("granite_swa", Always(Softmax), NORM).fused(),
    row("granitehybrid", Always(Softmax), NORM),
    row("granitemoe", Always(Softmax), NORM),
    row("grok", Always(Softmax), NORM),
    row("grovemoe", Always(Softmax), NORM).routing(RoutingNode::ArgsortTwice)
        .mask(Mask::Impossible("chunk experts are chosen by the ids of the experts that were selected"))
        .profile(ProfilePass::Impossible("its graph gives two routings a layer one name"))
        .refuse("its chunk experts each serve a fixed run of experts, so that removing one renumbers the chunks"),
    row("hunyuan-moe", Always(Softmax), NORM),
    row("hy_v3", Key(Some(Sigmoid)), KEY).bias(Optional).fused().mtp(MtpSupport::Runs)
        .note("the selection bias is called exp_probs_b, without a suffix"),
    row("hy_v4", Key(None), KEY).bias(Optional),
    row("jamba", Always(Softmax), RAW),
    row("k2-horizon", Key(Some(Sigmoid)), KEY).bias(Optional)
        .note("attn_v_exps are value experts with a router of their own and stay whole"),
    row("kimi-k3", Key(None), KEY).bias(Required),
    row("kimi-linear", Key(None), NORM).bias(Required),
    row("kolibri1", Key(None), KEY).bias(Required).no_groups().routing(RoutingNode::TopkOnly)
        .note("the selection bias is added to the logits"),
    row("laguna", Key(Some(Sigmoid)), KEY).bias(Required),
    row("lfm2moe", Key(None), NORM).bias(Required),
    row("llada-moe", Always(Softmax), RAW).profile(ProfilePass::NonCausal),
    row("llama", Always(Softmax), NORM),
    row("llama-embed", Always(Softmax), NORM).profile(ProfilePass::NonCausal),
    row("llama4", Always(Sigmoid), RAW)
        .special_count(128, "llama.cpp switches the normalisation of queries and keys off at exactly that number")
        .note("selects by logits, and weights an expert's input instead of its output"),
    row("maion-coder", Always(Softmax), NORM).per_layer_used().mask(Mask::Proven(&["ffn_moe_probs"]))
        .note("the router logits have no name in the graph"),
    row("maple", Always(Softmax), NORM),
    row("mellum", Key(Some(Softmax)), Renormalise::Key(true)).mtp(MtpSupport::Runs),
    row("mimo2", Always(Sigmoid), NORM).bias(Optional).mtp(MtpSupport::Stored)
        .note("the graph of its MTP block is a dense one, so that experts in a block never run"),
    row("minicpm", Always(Softmax), NORM),
    row("minimax-01", Always(Softmax), NORM),
    row("minimax-m2", Key(None), NORM).bias(Required),
    row("minimax-m3", Key(None), KEY).bias(Required),
    row("mistral-large4", Key(None), KEY),
    row("mistral3", Always(Softmax), NORM),
    row("mistral4", Key(Some(Softmax)), KEY).bias(Optional).fused().mtp(MtpSupport::Stored),
    row("muse-spark", Key(None), KEY).bias(Required),
    row("nemotron_h", Always(Sigmoid), KEY).bias(Required).no_gate().per_layer_experts().per_layer_used()
        .mtp(MtpSupport::Stored),
    row("nemotron_h_moe", Always(Sigmoid), KEY).bias(Required).no_gate().per_layer_experts().per_layer_used()
        .mtp(MtpSupport::Runs)
        .note("an MTP block holds expert_count experts and names its router logits mtp_ffn_moe_logits"),
    row("nomic-bert-moe", Always(Softmax), RAW).no_gate().profile(ProfilePass::NonCausal),
    row("olmoe", Always(Softmax), RAW),
    row("phimoe", Always(Softmax), NORM),
    row("qwen2moe", Always(Softmax), RAW),
    row("qwen35moe", Always(Softmax), NORM).fused().mtp(MtpSupport::Runs),
    row("qwen3moe", Always(Softmax), NORM),
    row("qwen3next", Always(Softmax), NORM).fused().mtp(MtpSupport::Runs),
    row("qwen3vlmoe", Always(Softmax), NORM),
    row("qwen4exp", Always(Softmax), NORM).fused().mtp(MtpSupport::Runs).profile(ProfilePass::Logits(WIDE_OUTPUT)),
    row("refact", Always(Softmax), NORM)
        .mask(Mask::Impossible("llama.cpp loads its experts but its graph has no router"))
        .profile(ProfilePass::Impossible("llama.cpp loads its experts but its graph has no router"))
        .refuse("llama.cpp loads its experts but its graph has no router, so that no such model runs"),
    row("rnd1", Always(Softmax), NORM).profile(ProfilePass::NonCausal),
    row("smallthinker", Key(None), NORM),
    row("step35", Key(Some(Sigmoid)), KEY).bias(Optional).mtp(MtpSupport::Runs),
];
