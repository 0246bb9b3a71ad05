use super::*;

fn part(part: &str) -> Axis {
    classify(&format!("blk.17.{part}"))
}

#[test]
fn expert_names_have_their_roles() {
    let expected = [
        ("ffn_gate_inp.weight", Role::RouterWeight, 1),
        ("ffn_gate_inp.bias", Role::RouterBias, 0),
        ("exp_probs_b.bias", Role::SelectionBias, 0),
        ("exp_probs_b", Role::SelectionBias, 0),
        ("exp_probs_b_vl.bias", Role::SelectionBiasVl, 0),
        ("ffn_gate_exps.weight", Role::Gate, 2),
        ("ffn_up_exps.weight", Role::Up, 2),
        ("ffn_down_exps.weight", Role::Down, 2),
        ("ffn_gate_up_exps.weight", Role::GateUp, 2),
        ("ffn_gate_exps.bias", Role::GateBias, 1),
        ("ffn_up_exps.bias", Role::UpBias, 1),
        ("ffn_down_exps.bias", Role::DownBias, 1),
        ("ffn_gate_exps.scale", Role::GateScale, 0),
        ("ffn_up_exps.scale", Role::UpScale, 0),
        ("ffn_down_exps.scale", Role::DownScale, 0),
        ("ffn_gate_exps.input_scale", Role::GateInputScale, 0),
        ("ffn_up_exps.input_scale", Role::UpInputScale, 0),
        ("ffn_down_exps.input_scale", Role::DownInputScale, 0),
    ];
    for (name, role, axis) in expected {
        assert_eq!(part(name), Axis::Expert(role), "{name}");
        assert_eq!(role.axis(), axis, "{name}");
    }
    assert_eq!(EXPERT.len(), expected.len());
}

#[test]
fn expert_names_are_sorted_for_search() {
    assert!(EXPERT.is_sorted_by(|a, b| a.0 < b.0));
}

#[test]
fn similar_names_are_not_expert_names() {
    for name in [
        "ffn_gate_inp_shexp.weight",
        "ffn_gate_inp.scale",
        "ffn_norm_exps.weight",
        "attn_v_exps.weight",
        "attn_v_gate.weight",
        "attn_v_gate.bias",
        "ffn_gate_shexp.weight",
        "ffn_up_shexp.scale",
        "ffn_down_shexp.input_scale",
        "ffn_latent_down.weight",
        "ffn_routed_norm.weight",
        "ffn_gate.weight",
        "ffn_down.bias",
        "attn_q.lora_a",
        "attn_sinks.weight",
        "ssm_a",
        "ffn_norm",
        "ffn.act.scales",
        "indexer.k_norm.bias",
        "nextn.shared_head_head.input_scale",
        "shortconv.in_proj.weight",
        "attn_conv_base",
    ] {
        assert_eq!(part(name), Axis::Other, "{name}");
    }
}

#[test]
fn names_that_llama_cpp_does_not_load_are_unknown() {
    for name in [
        "ffn_gate_up_exps.scale",
        "ffn_gate_up_exps.bias",
        "ffn_gate_up_exps.input_scale",
        "ffn_gate_exps",
        "ffn_gate_inp",
        "exp_probs_b.weight",
        "exp_probs_b_vl",
        "ffn_gate_exps.lora_a",
        "ffn_gate_tid2eid",
        "ffn_up_exps.weight.part",
        "my_ffn_up_exps.weight",
        "attn_qx.weight",
        "attn_q.weights",
        "attn_q.weight.scale",
        "",
    ] {
        assert_eq!(part(name), Axis::Unknown, "{name}");
    }
}

#[test]
fn hash_tables_chunks_and_single_experts_are_told_apart() {
    assert_eq!(part("ffn_gate_tid2eid.weight"), Axis::HashTable);
    for name in ["ffn_gate_chexps.weight", "ffn_up_chexps.weight", "ffn_down_chexps.weight"] {
        assert_eq!(part(name), Axis::Chunk);
    }
    for name in ["ffn_gate.0.weight", "ffn_up.15.weight", "ffn_down.7.weight"] {
        assert_eq!(part(name), Axis::PerExpert);
    }
    assert_eq!(part("ffn_gate.x.weight"), Axis::Unknown);
    assert_eq!(part("ffn_norm.3.weight"), Axis::Unknown);
}

#[test]
fn names_outside_blocks_have_no_experts() {
    for name in ["token_embd.weight", "output.weight", "rope_freqs.weight", "enc.blk.0.attn_q.weight"] {
        assert_eq!(classify(name), Axis::Other, "{name}");
    }
    for name in [
        "blk.01.attn_q.weight",
        "blk.-1.attn_q.weight",
        "blk..attn_q.weight",
        "blk.99999999999.attn_q.weight",
        "blk.3",
        "mtp.0.ffn_up_exps.weight",
        "ffn_gate_inp.weight",
    ] {
        assert_eq!(classify(name), Axis::Unknown, "{name}");
    }
    assert_eq!(split_block("blk.0.x.y"), Some((0, "x.y")));
    assert_eq!(split_block("blk.4294967295.x"), Some((u32::MAX, "x")));
}

#[test]
fn names_have_one_class_each() {
    for (at, stem) in OTHER.iter().enumerate() {
        assert!(!OTHER[..at].contains(stem), "{stem} is listed twice");
        for ending in ENDINGS.iter().chain(&[""]) {
            let name = format!("{stem}{ending}");
            assert!(EXPERT.iter().all(|(known, _)| *known != name), "{name} has two classes");
        }
    }
}
