//! `docs/architectures.md`, generated from the table of architectures.
//!
//! `UPDATE_DOCS=1 cargo test architectures_document` writes it.

use super::*;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Architectures

Generated from `src/arch/table.rs` by the test that guards it; `UPDATE_DOCS=1 cargo test architectures_document`
writes it.

Every architecture of llama.cpp v0.8.0 that routes tokens to experts has a row here; those that have none are dense. The
tests read the list of the linked llama.cpp and fail when one has no row (`tests/architectures/table.rs`).

## How to read the table

*Tensors*: what a layer has besides the router (`ffn_gate_inp.weight`) and the experts' gate, up and down weights
(`ffn_{gate,up,down}_exps.weight`). Their outermost dimension counts the experts; a cut takes the kept experts' bytes
as they are. Wherever the file has them, `ffn_{gate,up,down}_exps.scale` and `.input_scale` are cut too. All other
tensors stay byte for byte. A name in brackets may be absent.

*Routing*: the gate; what is added for the selection only; whether the selected weights are made to add up to one. \"by
key\" is `{arch}.expert_gating_func` or `{arch}.expert_weights_norm`, with what holds in its absence.

*MTP*: multi-token-prediction blocks. *runs*: llama.cpp has a graph for them, and a profile runs a model's one
block behind each window, from the trunk's states, and counts its routing; *stored*: they are loaded at most. Their
experts are cut like all others, since llama.cpp checks the shapes, but never by another layer's ids, which mean nothing
there: a block that was not profiled is cut by a plan that lists its experts (`--mtp plan`), or not at all. With
`--mtp drop` the blocks are left out of the file: their tensors, `nextn_predict_layers`, their part of `block_count`,
and their entries in arrays that have one a layer. `moeslice.mtp` then is `dropped`, and only so may `verify` miss them.
An array that may have one entry a layer and is not known, or a list that names such a block, is a refusal.

*Profile*: how a pass watches the routing. *headless*: without logits; *logits*: they have to be computed; *whole
windows*: attention looks ahead, so a window is computed at once.

*Mask*: the graph nodes into which -inf is written for an expert so that the whole model computes what the cut one
would. `logits` is `ffn_moe_logits`, `probs_biased` and `logits_biased` likewise; a node that a layer does not have is
passed over. With a softmax over the selected experts, `ffn_moe_probs` is written too, since there it is another name
of the logits.

*Tested*: **proven** means that, on a tiny random model made through llama.cpp's own API, the counts of a profile equal
the ids that reach the graph's `MUL_MAT_ID` nodes (with and without LM head where both are possible, with one and
several ubatches, the last layer included); that a cut file has exactly the kept slabs and loads; that its outputs equal
those of the masked model to 1e-5 of the largest (nomic-bert-moe: 1e-4, since ggml looks GELU up in half precision) with
the same best token everywhere; and that one wrong expert shows. Without its MTP block, a model computes bit for bit what it
did. **cut only**: files are cut and load, but do not run
by themselves.
";

const TAIL: &str = "
## How many experts can stay

- at least as many as a token goes to (the largest, when it differs by layer);
- with `expert_group_count` G above 1, a multiple of G, at least 2 in each group, and enough that the groups which a
  token reaches hold as many as it goes to; each group keeps the same number;
- more than G, whatever the router makes of the groups: llama.cpp asserts it;
- the same number in every layer, or all of a layer's own where it has fewer (nemotron);
- all of them: always.

## Layers that look experts up by token

Layers below `{arch}.hash_layer_count` have `ffn_gate_tid2eid.weight`, a table token → expert ids. Its values are
rewritten: a kept expert gets its new number; a removed one is replaced by the next kept expert above it in the old
numbering, beginning again at the lowest, that the token does not go to yet.

## What is refused

- expert-like or N-sized tensors of `blk.*` that llama.cpp v0.8.0 does not name: they may belong to the experts;
- one tensor an expert (`ffn_gate.0.weight`), which llama.cpp no longer loads;
- chunk experts (`ffn_*_chexps`), whatever the architecture;
- scales of nemotron layers that have fewer experts than the largest: their length does not tell whose they are;
- per-layer `expert_used_count` above the first entry where llama.cpp takes the first for all layers: it aborts.

An architecture that is not in the table is cut by the general rules (the names of the tensors and their outermost
dimension), and `inspect` says so; a mask for it is marked as unproven.
";

/// A name, in brackets when it may be absent.
fn presence(names: &mut Vec<String>, presence: Presence, name: &str) {
    match presence {
        Presence::Never => {}
        Presence::Optional => names.push(format!("(`{name}`)")),
        Presence::Required => names.push(format!("`{name}`")),
    }
}

fn tensors(row: &Architecture) -> String {
    let mut names = Vec::new();
    if row.fused_gate_up {
        names.push("gate and up as one `ffn_gate_up_exps.weight`, or apart".to_owned());
    }
    if row.no_gate {
        names.push("no gate".to_owned());
    }
    let bias = if row.architecture == "hy_v3" { "exp_probs_b" } else { "exp_probs_b.bias" };
    presence(&mut names, row.bias, bias);
    presence(&mut names, row.bias_vl, "exp_probs_b_vl.bias");
    if row.expert_bias {
        names.push("`ffn_gate_inp.bias`, `ffn_{gate,up,down}_exps.bias`".to_owned());
    }
    if row.hash_layers {
        names.push("`ffn_gate_tid2eid.weight` in hash layers".to_owned());
    }
    names.join(", ")
}

fn routing(row: &Architecture) -> String {
    let mut text = match row.selection {
        GateSource::Always(gate) => gate.name().to_owned(),
        GateSource::Key(Some(gate)) => format!("by key ({})", gate.name()),
        GateSource::Key(None) => "by key (required)".to_owned(),
    };
    text += match row.bias {
        Presence::Never => "",
        Presence::Optional => ", bias where there is one",
        Presence::Required => ", bias",
    };
    text += match row.renormalise {
        Renormalise::Always => "; normalised",
        Renormalise::Never => "; as they are",
        Renormalise::Key(true) => "; by key (normalised)",
        Renormalise::Key(false) => "; by key (as they are)",
    };
    if row.per_layer_used {
        text += "; own number a layer";
    }
    if !row.groups {
        text += "; groups have no effect";
    }
    text
}

fn mask(row: &Architecture) -> String {
    let nodes = row.mask.nodes().iter().map(|node| node.trim_start_matches("ffn_moe_"));
    let nodes = nodes.collect::<Vec<_>>().join(", ");
    let table = if row.hash_layers { "; hash layers: the ids of `topk`" } else { "" };
    if nodes.is_empty() { "none".to_owned() } else { format!("{nodes}{table}") }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    text += "\n## The table\n\n";
    text += "| architecture | tensors | routing | MTP | profile | mask | tested |\n";
    text += "|---|---|---|---|---|---|---|\n";
    for row in architectures() {
        let mtp = match row.mtp {
            MtpSupport::Never => "",
            MtpSupport::Stored => "stored",
            MtpSupport::Runs => "runs",
            MtpSupport::RunsUnsectioned => "runs without rope sections",
        };
        let pass = match row.profile {
            ProfilePass::Headless => "headless",
            ProfilePass::Logits(_) => "logits",
            ProfilePass::NonCausal => "whole windows",
            ProfilePass::Impossible(_) => "none",
        };
        let tested = match (row.refuse, row.mask) {
            (Some(_), _) => "refused",
            (None, Mask::Proven(_)) => "proven",
            (None, _) => "cut only",
        };
        let (name, tensors, routing, mask) = (row.architecture, tensors(row), routing(row), mask(row));
        let _ = writeln!(text, "| {name} | {tensors} | {routing} | {mtp} | {pass} | {mask} | {tested} |");
    }
    text += "\n## Particulars\n\n";
    for row in architectures() {
        let name = row.architecture;
        let mut say = |what: &str| {
            let _ = writeln!(text, "- **{name}**: {what}.");
        };
        if let Some(why) = row.refuse {
            say(&format!("refused, {why}"));
        }
        if let Some((count, what)) = row.special_count {
            say(&format!("not cut from or to {count} experts: {what}"));
        }
        if row.per_layer_experts {
            say("layers may have fewer experts than `expert_count`; the router's outermost dimension tells");
        }
        if row.mtp_needs_projection {
            say("blocks count as MTP only when the first has `nextn.eh_proj.weight`");
        }
        if row.routing_node == RoutingNode::TopkOnly {
            say("its graph has `ffn_moe_topk` and no `ffn_moe_argsort`");
        }
        match row.profile {
            ProfilePass::Logits(why) => say(&format!("logits are computed because {why}")),
            ProfilePass::Impossible(why) if row.refuse.is_none() => say(&format!("no profile, {why}")),
            _ => {}
        }
        if let Some(note) = row.note {
            say(note);
        }
    }
    text + TAIL
}

#[test]
fn architectures_document_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architectures.md");
    let text = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let stale =
        "docs/architectures.md is not that of the table; run UPDATE_DOCS=1 cargo test architectures_document";
    assert!(found == text, "{stale}");
}
