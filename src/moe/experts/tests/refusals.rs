//! Files that are refused, and why.

use proptest::prelude::*;

use super::*;

#[test]
fn model_without_experts_is_refused() {
    let mut dense = TestModel::new("llama", 1, 8, 2);
    dense.dense_layer(0);
    assert_eq!(dense.refusal(), "llama.expert_count is 8 but no layer has experts: the file is incomplete");
    for n_expert in [0_u32, 1] {
        dense.key("expert_count", n_expert);
        assert_eq!(dense.refusal(), "not a Mixture-of-Experts model (architecture llama)");
    }
    dense.drop_key("expert_count");
    assert!(matches!(dense.read(), Err(MoeError::NotMoe { .. })));
    let mut uncounted = TestModel::plain("llama", 1, 8, 2);
    uncounted.drop_key("expert_count");
    assert_eq!(
        uncounted.refusal(),
        "has the expert tensor blk.0.ffn_gate_inp.weight but no llama.expert_count: convert the model again"
    );
}

#[test]
fn one_tensor_per_expert_is_refused_as_old_form() {
    let mut model = TestModel::new("llama", 1, 8, 2);
    model.part(0, "ffn_gate_inp.weight", &[N_EMBD, 8]).part(0, "ffn_gate.3.weight", &[N_EMBD, N_FF]);
    assert_eq!(
        model.refusal(),
        "blk.0.ffn_gate.3.weight holds a single expert; llama.cpp no longer loads this form: convert the model again"
    );
}

#[test]
fn metadata_that_disagree_with_tensors_are_refused() {
    let model = TestModel::plain("qwen3moe", 1, 256, 8);
    let mut cut = TestModel::new("qwen3moe", 1, 256, 8);
    cut.plain_layer(0, 132);
    assert_eq!(
        cut.refusal(),
        "blk.0.ffn_gate_inp.weight holds 132 experts, but qwen3moe.expert_count says 256: the model was cut or \
         converted wrongly"
    );
    // One tensor that was forgotten.
    let mut forgotten = model.clone();
    forgotten.part(0, "exp_probs_b.bias", &[132]);
    assert!(matches!(
        forgotten.read(),
        Err(MoeError::ExpertMismatch { tensor, found: 132, expected: 256, .. }) if tensor == "blk.0.exp_probs_b.bias"
    ));
}

#[test]
fn unknown_tensor_that_may_belong_to_experts_is_refused() {
    let plain = TestModel::plain("qwen3moe", 1, 8, 2);
    let refused = |name: &str, dims: &[u64]| {
        let mut model = plain.clone();
        model.tensor(name, dims);
        matches!(model.read(), Err(MoeError::UnknownTensor { tensor, .. }) if tensor == name)
    };
    for (name, dims) in [
        ("blk.0.ffn_mystery.weight", &[N_EMBD, 8][..]),
        ("blk.0.ffn_mystery.weight", &[3, 8, 1]),
        ("blk.00.attn_norm.weight", &[8]),
        ("blk.0.ffn_gate_up_exps.scale", &[3]),
        ("blk.0.ffn_sub_exps.weight", &[3]),
        ("blk.0.exp_probs_c.bias", &[3]),
        ("blk.0.ffn_gate_inp_2.weight", &[3]),
        ("mtp.0.ffn_up_exps.weight", &[3]),
    ] {
        assert!(refused(name, dims), "{name} {dims:?}");
    }
    for (name, dims) in [
        ("blk.0.ffn_mystery.weight", &[8, 3][..]),
        ("blk.0.ffn_mystery", &[3]),
        ("mystery.weight", &[N_EMBD, 8]),
    ] {
        assert!(!refused(name, dims), "{name} {dims:?}");
    }
    let mut model = plain.clone();
    model.part(0, "ffn_mystery.weight", &[N_EMBD, 8]);
    assert_eq!(
        model.refusal(),
        "blk.0.ffn_mystery.weight with shape [6, 8] is unknown and may belong to the experts (its outermost \
         dimension is 8, as are the experts): a newer moeslice may know it"
    );
}

#[test]
fn unknown_tensor_as_wide_as_a_smaller_layer_is_refused() {
    let mut model = TestModel::new("nemotron_h", 2, 8, 2);
    for (layer, n) in [(0, 8), (1, 5)] {
        model.part(layer, "ffn_gate_inp.weight", &[N_EMBD, n]);
        model.part(layer, "ffn_up_exps.weight", &[N_EMBD, N_FF, n]);
        model.part(layer, "ffn_down_exps.weight", &[N_FF, N_EMBD, n]);
    }
    model.part(1, "ffn_mystery.weight", &[5]);
    assert!(matches!(model.read(), Err(MoeError::UnknownTensor { .. })));
}

#[test]
fn incomplete_layer_is_refused() {
    let parts = [
        ("ffn_gate_inp.weight", &[N_EMBD, 8][..]),
        ("ffn_up_exps.weight", &[N_EMBD, N_FF, 8]),
        ("ffn_down_exps.weight", &[N_FF, N_EMBD, 8]),
    ];
    for (missing, _) in parts {
        let mut model = TestModel::new("qwen3moe", 1, 8, 2);
        for (part, dims) in parts {
            if part != missing {
                model.part(0, part, dims);
            }
        }
        assert_eq!(model.refusal(), format!("layer 0 has experts but no {missing}: the file is incomplete"));
    }
}

#[test]
fn scale_in_packed_blocks_is_refused() {
    let mut model = TestModel::plain("qwen3moe", 1, 32, 2);
    model.typed("blk.0.exp_probs_b.bias", &[32], TensorType::Q8_0);
    assert_eq!(
        model.refusal(),
        "blk.0.exp_probs_b.bias is Q8_0, which packs several experts into a block: write this tensor as F32"
    );
    let mut model = TestModel::plain("qwen3moe", 1, 32, 2);
    model.typed("blk.0.exp_probs_b.bias", &[32], TensorType::BF16);
    assert_eq!(read(&model).layers[0].tensor(Role::SelectionBias).map(|t| t.slab_bytes), Some(2));
}

#[test]
fn quantised_experts_have_whole_rows() {
    let mut model = TestModel::new("gpt-oss", 1, 3, 2);
    model.part(0, "ffn_gate_inp.weight", &[64, 3]);
    model.typed("blk.0.ffn_gate_exps.weight", &[64, 2, 3], TensorType::MXFP4);
    model.typed("blk.0.ffn_up_exps.weight", &[64, 2, 3], TensorType::Q4_0);
    model.typed("blk.0.ffn_down_exps.weight", &[32, 64, 3], TensorType::Q8_0);
    let slabs: Vec<_> = read(&model).layers[0].tensors.iter().map(|tensor| tensor.slab_bytes).collect();
    assert_eq!(slabs, [256, 2 * 2 * 17, 2 * 2 * 18, 64 * 34]);
}

#[test]
fn numbers_on_which_llama_cpp_aborts_are_refused() {
    let refusal = |key: &str, value: u32| {
        let mut model = TestModel::plain("deepseek2", 2, 8, 2);
        model.key("expert_group_count", 4_u32).key("expert_group_used_count", 2_u32).key(key, value);
        model.refusal()
    };
    let damaged = ": the metadata are damaged";
    for (key, value, rule) in [
        ("expert_count", 1025, "llama.cpp has room for 1024"),
        ("block_count", 0, "it has to be 1 to 512"),
        ("block_count", 513, "it has to be 1 to 512"),
        ("nextn_predict_layers", 3, "deepseek2.block_count is 2"),
        ("expert_used_count", 0, "deepseek2.expert_count is 8"),
        ("expert_used_count", 9, "deepseek2.expert_count is 8"),
        ("expert_group_count", 8, "deepseek2.expert_count is 8, which has to be more"),
        (
            "expert_group_count",
            3,
            "deepseek2.expert_count is 8, and each group needs the same number of 2 or more",
        ),
        ("expert_group_used_count", 0, "it has to be 1 or more and below the 4 groups"),
        ("expert_group_used_count", 4, "it has to be 1 or more and below the 4 groups"),
    ] {
        assert_eq!(refusal(key, value), format!("deepseek2.{key} is {value}, but {rule}{damaged}"));
    }
    let mut model = TestModel::plain("llama", 1, 8, 2);
    model.plain_layer(1, 8);
    assert_eq!(model.refusal(), "blk.1.ffn_gate_inp.weight belongs to layer 1, but llama.block_count is 1");
}

#[test]
fn keys_of_wrong_type_or_length_are_refused() {
    let refusal = |edit: fn(&mut TestModel)| {
        let mut model = TestModel::plain("llama", 2, 8, 2);
        edit(&mut model);
        model.refusal()
    };
    let again = ": convert the model again";
    assert_eq!(
        refusal(|f| _ = f.drop_key("expert_used_count")),
        format!("has no llama.expert_used_count{again}")
    );
    assert_eq!(
        refusal(|f| _ = f.key("expert_count", "8")),
        format!("llama.expert_count is of type string, llama.cpp takes a u32 only{again}")
    );
    assert_eq!(
        refusal(|f| _ = f.key("expert_count", 8_u64)),
        format!("llama.expert_count is of type u64, llama.cpp takes a u32 only{again}")
    );
    assert_eq!(
        refusal(|f| _ = f.key("expert_used_count", vec![2_u32, 2, 2])),
        "llama.expert_used_count has 3 entries for 2 layers: the metadata are damaged"
    );
    assert!(refusal(|f| _ = f.key("expert_used_count", vec![2_i32, -2])).contains("not negative"));
    assert!(refusal(|f| _ = f.key("expert_used_count", 2.0_f32)).contains("a u32 or an array of u32 or i32"));
}

/// Anything that a file can say about its experts, right or wrong.
fn any_model() -> impl Strategy<Value = TestModel> {
    let architectures =
        ["qwen3moe", "nemotron_h", "deepseek4", "llama4", "grovemoe", "kolibri1", "unheard-of"];
    let parts = [
        "ffn_gate_inp.weight",
        "ffn_gate_exps.weight",
        "ffn_up_exps.weight",
        "ffn_down_exps.weight",
        "ffn_up_exps.scale",
        "ffn_up_exps.bias",
        "ffn_up_chexps.weight",
        "ffn_gate_tid2eid.weight",
        "exp_probs_b.bias",
        "ffn_norm.weight",
        "ffn_mystery.weight",
    ];
    let n = prop_oneof![5 => 4..9_u32, 1 => 0..4_u32];
    let part = (prop::sample::select(parts.to_vec()), 0..3_u32, prop::collection::vec(1..7_u64, 0..3));
    let keys = [
        "block_count",
        "nextn_predict_layers",
        "expert_group_count",
        "expert_group_used_count",
        "hash_layer_count",
    ];
    let key = (prop::sample::select(keys.to_vec()), 0..5_u32);
    (
        prop::sample::select(architectures.to_vec()),
        (n.clone(), prop_oneof![5 => Just(None), 1 => n.prop_map(Some)], 1..5_u32),
        prop::collection::vec(part, 0..2),
        prop::collection::vec(key, 0..3),
    )
        .prop_map(|(architecture, (count, held, used), parts, keys)| {
            let mut model = TestModel::new(architecture, 2, count, used);
            model.plain_layer(0, held.unwrap_or(count).max(1).into()).plain_layer(1, count.max(1).into());
            for (part, layer, mut dims) in parts {
                let name = format!("blk.{layer}.{part}");
                dims.push(count.max(1).into());
                model.tensors.retain(|(info, _)| info.name != name);
                model.tensor(&name, &dims);
            }
            for (key, value) in keys {
                model.key(key, value);
            }
            model
        })
}

proptest! {
    #[test]
    fn accepted_models_are_consistent(model in any_model()) {
        let opened = model.open();
        let Ok(experts) = Experts::read(&opened.model) else { return Ok(()) };
        prop_assert!(experts.expert_bytes() <= opened.model.total_bytes());
        for layer in &experts.layers {
            prop_assert!(0 < layer.n_expert_used && layer.n_expert_used <= layer.n_expert && layer.n_expert <= experts.n_expert);
            for tensor in &layer.tensors {
                let bytes = opened.model.tensors()[tensor.index].info.bytes();
                prop_assert_eq!(tensor.slab_bytes * u64::from(layer.n_expert), bytes);
            }
        }
        let possible = experts.possible_counts();
        prop_assert_eq!(possible.last(), Some(&experts.n_expert));
        for k in 0..experts.n_expert + 2 {
            let next = possible.iter().copied().find(|&other| other >= k);
            prop_assert_eq!(experts.next_count(k), next);
            match experts.check_count(k) {
                Ok(()) => prop_assert!(possible.contains(&k)),
                Err(error) => {
                    prop_assert!(!possible.contains(&k));
                    prop_assert_eq!(error.above, next);
                    prop_assert_eq!(error.below, possible.iter().copied().rfind(|&other| other < k));
                }
            }
        }
    }
}
