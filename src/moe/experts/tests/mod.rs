use super::*;
use crate::arch::GatingFunction;
use crate::moe::MoeError;
use crate::moe::test_model::{N_EMBD, N_FF, TestModel};

mod refusals;

/// Bytes of one expert of a plain F32 layer: its router row and three matrices.
const PLAIN: u64 = 4 * (N_EMBD + 3 * N_EMBD * N_FF);

fn read(model: &TestModel) -> Experts {
    model.read().expect("a model with experts")
}

fn roles(layer: &ExpertLayer) -> Vec<Role> {
    layer.tensors.iter().map(|tensor| tensor.role).collect()
}

#[test]
fn plain_experts_are_read() {
    let model = TestModel::plain("qwen3moe", 2, 31, 4);
    let opened = model.open();
    let experts = opened.experts();
    assert_eq!((experts.n_layer, experts.n_expert, experts.n_expert_used), (2, 31, 4));
    assert_eq!((experts.groups, experts.n_mtp, experts.used_per_layer.clone()), (None, 0, None));
    assert_eq!((experts.gate, experts.shared, experts.chunks), (Some(GatingFunction::Softmax), false, false));
    assert_eq!(experts.arch.map(|arch| arch.architecture), Some("qwen3moe"));
    let layer = experts.layer(1).expect("a layer with experts");
    assert_eq!((layer.n_expert, layer.n_expert_used, layer.kind), (31, 4, LayerKind::Trunk));
    assert_eq!(roles(layer), [Role::RouterWeight, Role::Gate, Role::Up, Role::Down]);
    assert_eq!(layer.bytes_per_expert, PLAIN);
    for tensor in &layer.tensors {
        let info = &opened.model.tensors()[tensor.index].info;
        assert!(info.name.starts_with("blk.1."));
        assert_eq!(tensor.slab_bytes * 31, info.bytes());
    }
    assert_eq!(experts.expert_bytes(), 2 * 31 * PLAIN);
    assert_eq!((layer.kept(7), layer.kept(40)), (7, 31));
    assert!(experts.layer(2).is_none());
}

#[test]
fn optional_tensors_are_all_expert_tensors() {
    let mut model = TestModel::plain("deepseek4", 1, 8, 2);
    model.key("hash_layer_count", 0_u32);
    model.part(0, "exp_probs_b.bias", &[8]).part(0, "exp_probs_b_vl.bias", &[8]);
    for matrix in ["gate", "up", "down"] {
        model.part(0, &format!("ffn_{matrix}_exps.scale"), &[8]);
        model.part(0, &format!("ffn_{matrix}_exps.input_scale"), &[8]);
    }
    let experts = read(&model);
    assert_eq!(experts.layers[0].tensors.len(), 12);
    assert_eq!(experts.layers[0].bytes_per_expert, PLAIN + 8 * 4);
}

#[test]
fn router_and_expert_biases_are_read() {
    let mut model = TestModel::plain("gpt-oss", 1, 8, 2);
    model.part(0, "ffn_gate_inp.bias", &[8]);
    model.part(0, "ffn_gate_exps.bias", &[N_FF, 8]).part(0, "ffn_up_exps.bias", &[N_FF, 8]);
    model.part(0, "ffn_down_exps.bias", &[N_EMBD, 8]).part(0, "attn_sinks.weight", &[8]);
    let layer = &read(&model).layers[0];
    assert_eq!(
        roles(layer)[4..],
        [Role::RouterBias, Role::GateBias, Role::UpBias, Role::DownBias],
        "attention sinks have as many entries and stay"
    );
    assert_eq!(layer.bytes_per_expert, PLAIN + 4 * (1 + 2 * N_FF + N_EMBD));
}

#[test]
fn fused_gate_and_up_are_read() {
    let mut model = TestModel::new("qwen35moe", 1, 8, 2);
    model.part(0, "ffn_gate_inp.weight", &[N_EMBD, 8]);
    model.part(0, "ffn_gate_up_exps.weight", &[N_EMBD, 2 * N_FF, 8]);
    model.part(0, "ffn_down_exps.weight", &[N_FF, N_EMBD, 8]);
    let layer = &read(&model).layers[0];
    assert_eq!(roles(layer), [Role::RouterWeight, Role::GateUp, Role::Down]);
    assert_eq!(layer.bytes_per_expert, PLAIN);
}

#[test]
fn experts_without_gate_in_every_other_layer_are_read() {
    let mut model = TestModel::new("nomic-bert-moe", 4, 8, 2);
    for layer in [1, 3] {
        model.part(layer, "ffn_gate_inp.weight", &[N_EMBD, 8]);
        model.part(layer, "ffn_up_exps.weight", &[N_EMBD, N_FF, 8]);
        model.part(layer, "ffn_down_exps.weight", &[N_FF, N_EMBD, 8]);
    }
    model.dense_layer(0).dense_layer(2);
    let experts = read(&model);
    assert_eq!(experts.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(roles(&experts.layers[0]), [Role::RouterWeight, Role::Up, Role::Down]);
}

#[test]
fn dense_layers_shared_experts_and_groups_are_read() {
    let mut model = TestModel::new("deepseek2", 3, 8, 2);
    model.key("expert_group_count", 4_u32).key("expert_group_used_count", 2_u32);
    model.key("expert_gating_func", 2_u32).dense_layer(0);
    for layer in [1, 2] {
        model.plain_layer(layer, 8).part(layer, "exp_probs_b.bias", &[8]);
        model.part(layer, "ffn_gate_inp_shexp.weight", &[8]).part(layer, "ffn_up_shexp.weight", &[N_EMBD, 8]);
    }
    let experts = read(&model);
    assert_eq!(experts.groups, Some(Groups { count: 4, used: 2 }));
    assert_eq!((experts.gate, experts.shared), (Some(GatingFunction::Sigmoid), true));
    assert_eq!(experts.layers.len(), 2);
    assert_eq!(experts.layers[0].tensors.len(), 5);
}

#[test]
fn selection_bias_of_hy_v3_is_read_without_suffix() {
    let mut model = TestModel::plain("hy_v3", 1, 8, 2);
    model.part(0, "exp_probs_b", &[8]);
    assert!(read(&model).layers[0].tensor(Role::SelectionBias).is_some());
    model.part(0, "exp_probs_b.bias", &[8]);
    assert_eq!(model.refusal(), "blk.0.exp_probs_b and blk.0.exp_probs_b.bias are the same part of a layer");
}

#[test]
fn mtp_blocks_are_read_as_such() {
    let mut model = TestModel::plain("glm4moe", 4, 8, 2);
    model.key("nextn_predict_layers", 1_u32).part(3, "nextn.eh_proj.weight", &[2 * N_EMBD, N_EMBD]);
    let experts = read(&model);
    assert_eq!(experts.n_mtp, 1);
    let kinds: Vec<_> = experts.layers.iter().map(|layer| layer.kind).collect();
    assert_eq!(kinds, [LayerKind::Trunk, LayerKind::Trunk, LayerKind::Trunk, LayerKind::Mtp]);
}

#[test]
fn deepseek4_block_without_projection_is_a_trunk_layer() {
    let mut model = TestModel::plain("deepseek4", 2, 8, 2);
    model.key("nextn_predict_layers", 1_u32).key("hash_layer_count", 0_u32);
    assert_eq!((read(&model).n_mtp, read(&model).layers[1].kind), (0, LayerKind::Trunk));
    model.part(1, "nextn.eh_proj.weight", &[2 * N_EMBD, N_EMBD]);
    assert_eq!((read(&model).n_mtp, read(&model).layers[1].kind), (1, LayerKind::Mtp));
}

#[test]
fn hash_layers_need_a_table() {
    let mut model = TestModel::plain("deepseek4", 2, 8, 2);
    model.key("hash_layer_count", 1_u32);
    assert_eq!(model.refusal(), "layer 0 has experts but no ffn_gate_tid2eid.weight: the file is incomplete");
    let table = "blk.0.ffn_gate_tid2eid.weight";
    let mut good = model.clone();
    good.typed(table, &[2, 8], TensorType::I32);
    let opened = good.open();
    let layer = &opened.experts().layers[0];
    let index = layer.hash_table.expect("a hash table");
    assert_eq!((opened.model.tensors()[index].info.name.as_str(), layer.kind), (table, LayerKind::Hash));
    assert_eq!(layer.tensors.len(), 4, "a table has no expert axis, whatever its size");
    for (dims, ty) in [(&[3, 8][..], TensorType::I32), (&[2, 8], TensorType::F32), (&[2], TensorType::I32)] {
        let mut bad = model.clone();
        bad.typed(table, dims, ty);
        assert!(
            bad.refusal().ends_with("but 2 expert ids of type I32 a token are needed"),
            "{}",
            bad.refusal()
        );
    }
}

#[test]
fn nemotron_layers_have_their_own_expert_counts() {
    let mut model = TestModel::new("nemotron_h_moe", 3, 8, 1);
    model.key("nextn_predict_layers", 1_u32).key("expert_used_count", vec![3_u32, 2, 1]);
    for (layer, n) in [(0, 8), (1, 5), (2, 8)] {
        model.part(layer, "ffn_gate_inp.weight", &[N_EMBD, n]).part(layer, "exp_probs_b.bias", &[n]);
        model.part(layer, "ffn_up_exps.weight", &[N_EMBD, N_FF, n]);
        model.part(layer, "ffn_down_exps.weight", &[N_FF, N_EMBD, n]);
    }
    let experts = read(&model);
    let numbers: Vec<_> = experts.layers.iter().map(|layer| (layer.n_expert, layer.n_expert_used)).collect();
    assert_eq!(numbers, [(8, 3), (5, 2), (8, 3)], "the MTP block selects as the first layer does");
    assert_eq!((experts.n_expert, experts.n_expert_used), (8, 3));
    assert_eq!(experts.layers[1].kept(6), 5);

    let mut too_many = model.clone();
    too_many.key("expert_count", 7_u32);
    assert_eq!(
        too_many.refusal(),
        "blk.0.ffn_gate_inp.weight holds 8 experts, but nemotron_h_moe.expert_count, the largest number of a \
         layer, says 7: the model was cut or converted wrongly"
    );
    let mut too_few = model.clone();
    too_few.key("expert_used_count", vec![3_u32, 6, 1]);
    assert!(matches!(too_few.read(), Err(MoeError::UsedCount { layer: 1, used: 6, n_expert: 5, .. })));
    // A block of multi-token prediction has to hold them all.
    let mut mtp = model.clone();
    mtp.key("nextn_predict_layers", 2_u32);
    assert!(matches!(mtp.read(), Err(MoeError::ExpertMismatch { found: 5, expected: 8, .. })));
}

#[test]
fn used_count_of_first_layer_holds_for_most_architectures() {
    let mut model = TestModel::plain("qwen3moe", 3, 8, 1);
    model.key("expert_used_count", vec![4_i32, 2, 1]);
    let experts = read(&model);
    assert_eq!(experts.used_per_layer.as_deref(), Some([4, 2, 1].as_slice()));
    assert!(experts.layers.iter().all(|layer| layer.n_expert_used == 4));
    model.key("expert_used_count", vec![2_i32, 2, 4]);
    let error = model.read().expect_err("llama.cpp aborts on it").to_string();
    assert!(
        error.contains("expert_used_count is 4, but its entry for layer 2 must not be above the first, 2")
    );
    let mut own = TestModel::plain("maion-coder", 3, 8, 1);
    own.key("expert_used_count", vec![2_u32, 4, 1]);
    assert_eq!(read(&own).layers.iter().map(|layer| layer.n_expert_used).collect::<Vec<_>>(), [2, 4, 1]);
    model.key("expert_used_count", vec![0_u32, 2, 2]);
    assert!(matches!(model.read(), Err(MoeError::UsedCount { layer: 0, used: 0, .. })));
}

#[test]
fn unknown_architecture_is_read_by_the_general_rules() {
    let experts = read(&TestModel::plain("qwen9moe", 1, 8, 2));
    assert!(experts.arch.is_none() && experts.gate.is_none());
    assert_eq!(experts.check_count(5), Ok(()));
}

#[test]
fn known_tensors_as_wide_as_the_expert_count_are_not_cut() {
    let mut model = TestModel::plain("gemma4", 1, 8, 2);
    model.part(0, "attn_q_norm.weight", &[8]).part(0, "attn_output.weight", &[N_EMBD, 8]);
    model.part(0, "ffn_gate_inp.scale", &[8]).part(0, "ffn_norm_exps.weight", &[8]);
    model.part(0, "attn_v_exps.weight", &[N_EMBD, 2, 8]).tensor("output.weight", &[N_EMBD, 8]);
    assert_eq!(read(&model).layers[0].tensors.len(), 4);
}

#[test]
fn trailing_dimensions_of_one_are_ignored() {
    let mut model = TestModel::new("qwen3moe", 1, 8, 2);
    model.part(0, "ffn_gate_inp.weight", &[N_EMBD, 8, 1]);
    model.part(0, "ffn_up_exps.weight", &[N_EMBD, N_FF, 8, 1]);
    model.part(0, "ffn_down_exps.weight", &[N_FF, N_EMBD, 8]);
    model.part(0, "exp_probs_b.bias", &[8, 1]);
    let layer = &read(&model).layers[0];
    assert_eq!(layer.bytes_per_expert, 4 * (N_EMBD + 2 * N_EMBD * N_FF + 1));
    model.part(0, "ffn_up_exps.scale", &[8, 2]);
    assert_eq!(
        model.refusal(),
        "blk.0.ffn_up_exps.scale has the shape [8, 2], whose dimension 0 should be the last"
    );
}
