//! Models that differ from the plain one of their architecture: what an architecture allows, and what files hold.

use crate::counts;
use crate::dropped::dropped;
use crate::proof::{self, Subject, Tolerance};
use crate::support::isolated;
use crate::support::recipe::Recipe;
use crate::support::tiny::TinyModel;
use moeslice::arch::{self, GatingFunction, MtpSupport};
use moeslice::gguf::TensorType;
use moeslice::moe::{LayerKind, Role};

/// A test for each variant, and what its child process does.
macro_rules! variants {
    ($($test:ident: $make:expr;)*) => {
        /// Proves a variant, in a child process.
        pub fn child(name: &str) {
            match name {
                $(stringify!($test) => $make,)*
                other => panic!("unknown variant {other}"),
            }
        }

        mod each {
            $(
                #[test]
                fn $test() {
                    crate::variants::prove(stringify!($test));
                }
            )*
        }
    };
}

variants! {
    groups_with_bias: prove_all(grouped("deepseek2"));
    groups_glm: prove_all(grouped("glm4moe"));
    groups_bailing: prove_all(grouped("bailingmoe2"));
    groups_without_bias: prove_all(grouped("qwen3moe"));
    groups_ignored_by_the_router: prove_all(grouped("kolibri1"));
    unnormalised_weights_softmax: prove_all(model("deepseek2", |recipe| { recipe.set("expert_weights_norm", false); }));
    unnormalised_weights_sigmoid: prove_all(model("glm4moe", |recipe| { recipe.set("expert_weights_norm", false); }));
    gate_by_key_softmax: prove_all(gated("dots1", 1, GatingFunction::Softmax));
    gate_by_key_sigmoid: prove_all(gated("deepseek2", 2, GatingFunction::Sigmoid));
    gate_softmax_of_selected: prove_all(gated("smallthinker", 3, GatingFunction::SoftmaxOfSelected));
    without_selection_bias: prove_all(without("deepseek2", "exp_probs_b"));
    without_selection_bias_ernie: prove_all(without("ernie4_5-moe", "exp_probs_b"));
    without_scales: prove_all(without("qwen3moe", "scale"));
    without_shared_experts: prove_all(model("granitemoe", |recipe| {
        recipe.set("expert_shared_feed_forward_length", 0_u32);
    }));
    without_dense_layers: prove_all(model("deepseek2", |recipe| { recipe.set("leading_dense_block_count", 0_u32); }));
    two_dense_layers: prove_all(model("bailingmoe2", |recipe| { recipe.set("leading_dense_block_count", 2_u32); }));
    every_other_layer: prove_all(model("llama4", |recipe| { recipe.set("interleave_moe_layer_step", 2_u32); }));
    split_gate_up_deepseek2: prove_all(split("deepseek2"));
    split_gate_up_qwen35moe: prove_all(split("qwen35moe"));
    split_gate_up_gemma4: prove_all(split("gemma4"));
    split_gate_up_hy_v3: prove_all(split("hy_v3"));
    experts_in_q4_0: prove_rounded(quantised("qwen3moe", TensorType::Q4_0));
    experts_in_q8_0: prove_rounded(quantised("qwen3moe", TensorType::Q8_0));
    fused_experts_in_q8_0: prove_rounded(quantised("deepseek2", TensorType::Q8_0));
    experts_in_mxfp4: prove_rounded(quantised("gpt-oss", TensorType::MXFP4));
    two_hash_layers: prove_all(model("deepseek4", |recipe| { recipe.hash_layers(2); }));
    used_per_layer: prove_all(used_per_layer("maion-coder", &[3, 2, 4], &[3, 2, 4]));
    used_per_layer_taken_from_first: prove_all(used_per_layer("qwen3moe", &[4, 3, 2], &[4, 4, 4]));
    experts_per_layer: prove_all(fewer_experts_in_one_layer());
    three_experts: prove_all(model("qwen3moe", |recipe| { recipe.experts(3, 2); }));
    experts_31: prove_all(model("gpt-oss", |recipe| { recipe.experts(31, 4); }));
    experts_96: prove_all(model("deepseek2", |recipe| { recipe.experts(96, 6); }));
    experts_224: prove_all(model("qwen2moe", |recipe| { recipe.experts(224, 8); }));
    sizes_that_equal_the_experts: prove_all(sizes_that_equal_the_experts());
    mtp_bailingmoe2: prove_stored_mtp("bailingmoe2");
    mtp_bailingmoe3: prove_mtp("bailingmoe3");
    mtp_cohere2moe: prove_mtp("cohere2moe");
    mtp_deepseek2: prove_mtp("deepseek2");
    mtp_deepseek32: prove_mtp("deepseek32");
    mtp_deepseek4: prove_stored_mtp("deepseek4");
    mtp_dots3note: prove_dense_mtp("dots3note");
    mtp_exaone_moe: prove_dense_mtp("exaone-moe");
    mtp_glm_dsa: prove_mtp("glm-dsa");
    mtp_glm4moe: prove_with_mtp(mtp_model("glm4moe", true), true);
    mtp_glm4moe_with_sections: prove_with_mtp(mtp_model("glm4moe", false), false);
    mtp_glm5_next: prove_mtp("glm5-next");
    mtp_hy_v3: prove_mtp("hy_v3");
    mtp_mellum: prove_mtp("mellum");
    mtp_mimo2: prove_mtp("mimo2");
    mtp_mistral4: prove_mtp("mistral4");
    mtp_nemotron_h: prove_mtp("nemotron_h");
    mtp_nemotron_h_moe: prove_mtp("nemotron_h_moe");
    mtp_qwen35moe: prove_mtp("qwen35moe");
    mtp_qwen3next: prove_mtp("qwen3next");
    mtp_qwen4exp: prove_mtp("qwen4exp");
    mtp_step35: prove_mtp("step35");
}

fn prove(name: &str) {
    let out = isolated::run("child", &format!("variant {name}"), &[]).unwrap_or_else(|e| panic!("{e}"));
    println!("{out}");
}

/// Counts, cut and mask, as of the plain models.
fn prove_all(tiny: TinyModel) {
    proof::all(&Subject::new(tiny, Vec::new()), Tolerance { same: 1e-5, top1: true });
}

/// The same of quantised experts. Activations are rounded to 8 bits before they are multiplied with them; one at the
/// edge between two steps can fall to either side, which shows. It is rare, and does not happen with these numbers.
fn prove_rounded(tiny: TinyModel) {
    proof::all(&Subject::new(tiny, Vec::new()), Tolerance { same: 1e-5, top1: true });
}

/// The experts of an MTP block are cut with the others, and have no part in what the trunk computes.
fn prove_mtp(architecture: &str) {
    let runs = arch::architecture(architecture).is_some_and(|arch| arch.mtp == MtpSupport::Runs);
    prove_with_mtp(mtp_model(architecture, false), runs);
}

fn mtp_model(architecture: &str, unsectioned: bool) -> TinyModel {
    let mut tiny = model(architecture, |recipe| {
        recipe.mtp();
        if unsectioned {
            recipe.unset("rope.dimension_sections");
        }
    });
    let last = last_block(&tiny);
    // llama.cpp makes scales for the block, but does not count them when it passes the block over.
    tiny.tensors.retain(|(info, _)| !(info.name.starts_with(&last) && info.name.ends_with("scale")));
    tiny
}

/// The same where llama.cpp makes no tensors for the block: those of one more layer serve.
fn prove_stored_mtp(architecture: &str) {
    let runs = arch::architecture(architecture).is_some_and(|arch| arch.mtp == MtpSupport::Runs);
    prove_with_mtp(stored_mtp(architecture), runs);
}

fn stored_mtp(architecture: &str) -> TinyModel {
    let mut tiny = model(architecture, |recipe| {
        recipe.mtp().unset("nextn_predict_layers");
    });
    tiny.metadata.set(&format!("{architecture}.nextn_predict_layers"), 1_u32);
    let last = last_block(&tiny);
    tiny.tensors.retain(|(info, _)| !(info.name.starts_with(&last) && info.name.ends_with("scale")));
    tiny.add(&format!("{last}nextn.eh_proj.weight"), &[256, 128], TensorType::F32);
    for norm in ["enorm", "hnorm", "shared_head_norm"] {
        tiny.add(&format!("{last}nextn.{norm}.weight"), &[128], TensorType::F32);
    }
    if architecture == "bailingmoe2" {
        tiny.add(&format!("{last}layer_output_norm.weight"), &[128], TensorType::F32);
    }
    tiny
}

/// The block has no experts, whatever the layers have.
fn prove_dense_mtp(architecture: &str) {
    let mut tiny = stored_mtp(architecture);
    let last = last_block(&tiny);
    let not_there = ["exps", "shexp", "gate_inp", "exp_probs", "indexer"];
    tiny.tensors.retain(|(info, _)| {
        !info.name.starts_with(&last) || !not_there.iter().any(|part| info.name.contains(part))
    });
    for (part, dims) in [("gate", [128, 192]), ("up", [128, 192]), ("down", [192, 128])] {
        tiny.add(&format!("{last}ffn_{part}.weight"), &dims, TensorType::F32);
    }
    tiny.add(&format!("{last}nextn.embed_tokens.weight"), &[128, 256], TensorType::F32);
    // llama.cpp counts the block's share of these factors as a tensor of its own, and misses it in the file.
    tiny.tensors.retain(|(info, _)| info.name != "rope_freqs.weight");
    let subject = Subject::new(tiny, Vec::new());
    assert_eq!(subject.experts.n_mtp, 1);
    assert!(subject.experts.layers.iter().all(|layer| layer.kind == LayerKind::Trunk));
    proof::all(&subject, Tolerance { same: 1e-5, top1: true });
    dropped(&subject, Tolerance { same: 1e-5, top1: true });
}

fn last_block(tiny: &TinyModel) -> String {
    let blocks = tiny
        .tensors
        .iter()
        .filter_map(|(info, _)| info.name.strip_prefix("blk.")?.split_once('.')?.0.parse::<u32>().ok());
    format!("blk.{}.", blocks.max().expect("blocks"))
}

fn prove_with_mtp(tiny: TinyModel, runs: bool) {
    let subject = Subject::new(tiny, Vec::new());
    let last = subject.experts.layers.last().expect("layers");
    assert_eq!(last.kind, LayerKind::Mtp, "the experts of block {}", last.layer);
    assert_eq!(last.layer, subject.experts.n_layer - 1);
    assert_eq!(subject.experts.mtp_that_runs(), runs.then_some(last.layer));
    if runs {
        counts::mtp_counts(&subject, last.layer);
    }
    proof::all(&subject, Tolerance { same: 1e-5, top1: true });
    dropped(&subject, Tolerance { same: 1e-5, top1: true });
}

fn model(architecture: &str, change: impl FnOnce(&mut Recipe)) -> TinyModel {
    let mut recipe = Recipe::of(architecture);
    change(&mut recipe);
    crate::tiny(&recipe)
}

/// 16 experts in 4 groups, of which a token reaches 2.
fn grouped(architecture: &str) -> TinyModel {
    model(architecture, |recipe| {
        recipe.experts(16, 3).set("expert_group_count", 4_u32).set("expert_group_used_count", 2_u32);
    })
}

fn gated(architecture: &str, key: u32, gate: GatingFunction) -> TinyModel {
    assert_eq!(GatingFunction::from_key(key.into()), Some(gate));
    model(architecture, |recipe| {
        recipe.set("expert_gating_func", key);
    })
}

/// Tensors that the architecture does not need are left out of the file.
fn without(architecture: &str, part: &'static str) -> TinyModel {
    let tiny = model(architecture, |recipe| recipe.without.push(part));
    assert!(tiny.tensors.iter().all(|(info, _)| !info.name.contains(part)));
    let whole = crate::tiny(&Recipe::of(architecture));
    assert!(whole.tensors.len() > tiny.tensors.len(), "{architecture} has no {part}");
    tiny
}

fn split(architecture: &str) -> TinyModel {
    let mut tiny = crate::tiny(&Recipe::of(architecture));
    assert!(tiny.tensors.iter().any(|(info, _)| info.name.contains("ffn_gate_up_exps")));
    tiny.split_gate_up();
    assert!(!tiny.tensors.iter().any(|(info, _)| info.name.contains("ffn_gate_up_exps")));
    tiny
}

fn quantised(architecture: &str, ty: TensorType) -> TinyModel {
    let mut tiny = crate::tiny(&Recipe::of(architecture));
    tiny.retype(
        &["ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight", "ffn_gate_up_exps.weight"],
        ty,
    );
    assert!(tiny.tensors.iter().filter(|(info, _)| info.ty == ty).count() >= 4);
    tiny
}

/// The experts that each layer uses, as the file says and as llama.cpp takes it.
fn used_per_layer(architecture: &str, stated: &[u32], taken: &[u32]) -> TinyModel {
    let tiny = model(architecture, |recipe| {
        recipe.set("expert_used_count", stated.to_vec());
    });
    let subject = Subject::new(tiny.clone(), Vec::new());
    assert_eq!(subject.experts.n_expert_used, *stated.iter().max().expect("layers"));
    assert_eq!(subject.experts.layers.iter().map(|layer| layer.n_expert_used).collect::<Vec<_>>(), taken);
    tiny
}

/// A nemotron of which one layer has 6 of 8 experts.
fn fewer_experts_in_one_layer() -> TinyModel {
    // The scales of a layer have to have as many entries as the largest layer has experts, or do not load.
    let mut tiny = without("nemotron_h_moe", "scale");
    for (info, data) in &mut tiny.tensors {
        let experts = ["_exps.weight", "gate_inp.weight", "exp_probs_b.bias"]
            .iter()
            .any(|part| info.name.contains(part));
        if info.name.starts_with("blk.3.") && experts {
            let n_expert = info.dims.last_mut().expect("a dimension");
            data.truncate(data.len() / *n_expert as usize * 6);
            *n_expert = 6;
        }
    }
    let subject = Subject::new(tiny.clone(), Vec::new());
    assert_eq!(subject.experts.layers.iter().map(|layer| layer.n_expert).collect::<Vec<_>>(), [8, 6, 8]);
    tiny
}

/// Heads, and the size of a head, as many as there are experts: tensors without experts have dimensions of N.
fn sizes_that_equal_the_experts() -> TinyModel {
    let tiny = model("gpt-oss", |recipe| {
        recipe.experts(32, 4).set("attention.head_count", 32_u32).set("expert_feed_forward_length", 32_u32);
    });
    let subject = Subject::new(tiny.clone(), Vec::new());
    let sinks = tiny.tensor("blk.0.attn_sinks.weight").expect("sinks");
    assert_eq!(sinks.0.dims, [32]);
    let up = subject.experts.layers[0].tensor(Role::UpBias).expect("a bias");
    assert_eq!(subject.file.tensors()[up.index].info.dims, [32, 32]);
    tiny
}
