use crate::gguf::{Model, Value};
use crate::moe::test_model::TestModel;
use crate::moe::{Identity, KeptExperts, LayerKind, MoeError, Provenance, PrunedShape, ShardPolicy};

/// Four blocks, the last of them one of multi-token prediction.
fn model() -> TestModel {
    let mut model = TestModel::plain("glm4moe", 4, 8, 2);
    model.part(3, "nextn.eh_proj.weight", &[12, 6]);
    model.key("nextn_predict_layers", 1_u32);
    model
}

fn refusal(model: &TestModel) -> String {
    let opened = model.open();
    let error = opened.experts().without_mtp(&opened.model).expect_err("the block stays");
    assert!(matches!(error, MoeError::MtpStays { layer: 3 | 0, .. }), "{error}");
    error.to_string()
}

fn shape(model: &Model, k: u32) -> PrunedShape {
    let experts = crate::moe::Experts::read(model).expect("experts");
    let trunk = experts.without_mtp(model).expect("blocks that can be left out");
    let identity = Identity::of(model, &experts).expect("an identity");
    let provenance = Provenance::new(model, &identity, "", "", Vec::new());
    PrunedShape::new(model, &trunk, &KeptExperts::any(&trunk, k), &provenance).expect("a shape")
}

#[test]
fn mtp_blocks_are_left_out_with_their_metadata() {
    let mut model = model();
    model
        .key("expert_used_count", vec![2_u32, 2, 2, 5])
        .key("swiglu_clamp_exp", vec![1.0_f32, 2.0, 3.0, 4.0])
        .key("attention.sliding_window_pattern", vec![true, false, true, false])
        .key("rope.dimension_sections", vec![8_i32, 4, 4, 0])
        .key("attention.indexer.types", vec![true, true, true]);
    let opened = model.open();
    let trunk = opened.experts().without_mtp(&opened.model).expect("blocks that can be left out");
    assert_eq!((trunk.n_layer, trunk.n_mtp, trunk.mtp_dropped, trunk.n_expert_used), (3, 0, 1, 2));
    assert!(trunk.layers.iter().all(|layer| layer.kind == LayerKind::Trunk));

    let shape = shape(&opened.model, 4);
    let get = |key: &str| shape.metadata.get(&format!("glm4moe.{key}"));
    assert_eq!(get("nextn_predict_layers"), None);
    assert_eq!(get("block_count"), Some(Value::U32(3)));
    let len = |key: &str| get(key).and_then(|value| value.as_array()).map(|array| array.len());
    for key in ["expert_used_count", "swiglu_clamp_exp", "attention.sliding_window_pattern"] {
        assert_eq!(len(key), Some(3), "{key}");
    }
    assert_eq!(len("attention.indexer.types"), Some(3), "it had one for each block that stays");
    assert_eq!(len("rope.dimension_sections"), Some(4), "four as there are blocks, but none a block");
    assert!(Provenance::says_mtp_dropped(&shape.metadata));
    assert!(shape.tensors.iter().all(|info| !info.name.starts_with("blk.3.")));
    let names: Vec<_> = shape.sources.iter().map(|&at| &opened.model.tensors()[at].info.name).collect();
    assert_eq!(names, shape.tensors.iter().map(|info| &info.name).collect::<Vec<_>>());
    assert_eq!(names.len(), opened.model.tensors().len() - 6);
}

#[test]
fn model_without_mtp_blocks_stays_unchanged() {
    let opened = TestModel::plain("glm4moe", 2, 8, 2).open();
    assert_eq!(opened.experts().without_mtp(&opened.model).expect("nothing to do"), opened.experts());
    assert!(!Provenance::says_mtp_dropped(&shape(&opened.model, 4).metadata));
}

#[test]
fn second_cut_keeps_the_note_of_dropped_mtp() {
    let mut model = TestModel::plain("glm4moe", 2, 8, 2);
    model.metadata.set("moeslice.mtp", "dropped");
    assert!(Provenance::says_mtp_dropped(&shape(&model.open().model, 4).metadata));
}

#[test]
fn id_map_leaves_out_ids_of_mtp_blocks() {
    let mut model = model();
    model.metadata.set("moeslice.expert_count_original", 16_u32);
    for layer in 0..4_u32 {
        let ids: Vec<u32> = (layer..layer + 8).collect();
        model.metadata.set(&format!("moeslice.expert_ids.{layer}"), ids);
    }
    let shape = shape(&model.open().model, 4);
    assert_eq!(shape.ids.layers().map(|(layer, _)| layer).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(shape.ids.layer(2), Some([2, 3, 4, 5].as_slice()));
    assert!(!shape.metadata.contains("moeslice.expert_ids.3"));
}

#[test]
fn shards_count_the_remaining_tensors() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = model();
    let all = model.tensors.len();
    let (first, second) = model.tensors.split_at(all - 3);
    for (index, tensors) in [first, second].into_iter().enumerate() {
        let mut metadata = model.metadata.clone();
        metadata.set("split.no", index as u16);
        metadata.set("split.count", 2_u16);
        metadata.set("split.tensors.count", all as i32);
        let path = crate::gguf::shard_path(&folder.path().join("m"), index as u16, 2);
        let mut out = Vec::new();
        crate::gguf::write_model(&mut out, &metadata, tensors).expect("a shard");
        std::fs::write(path, out).expect("a file");
    }
    let path = crate::gguf::shard_path(&folder.path().join("m"), 0, 2);
    let files = shape(&Model::open(&path).expect("a model"), 8).files(ShardPolicy::Keep).expect("files");
    let left = all - 6;
    assert_eq!(files.iter().map(|file| file.tensors.len()).collect::<Vec<_>>(), [left, 0]);
    for file in &files {
        assert_eq!(file.metadata.get("split.tensors.count"), Some(Value::I32(left as i32)));
        assert_eq!(file.metadata.get("glm4moe.block_count"), Some(Value::U32(3)));
    }
}

#[test]
fn unknown_entry_that_may_belong_to_mtp_is_refused() {
    let with = |change: fn(&mut TestModel)| {
        let mut model = model();
        change(&mut model);
        refusal(&model)
    };
    let text = with(|model| {
        model.key("surprise", vec![1_u32; 4]);
    });
    assert!(text.contains("glm4moe.surprise has 4 entries"), "{text}");
    let text = with(|model| {
        model.key("ple.layers", vec![3_u32]);
    });
    assert!(text.contains("glm4moe.ple.layers names layer 3"), "{text}");
    let text = with(|model| model.metadata.set("general.list", vec!["blk.1.x", "blk.3.ffn_up.weight"]));
    assert!(text.contains("general.list names its tensor blk.3.ffn_up.weight"), "{text}");
    let text = with(|model| {
        model.key("nextn_predict_layers", 4_u32);
    });
    assert!(text.contains("no other block has experts"), "{text}");
    let mut stranger = TestModel::plain("qwen3moe", 4, 8, 2);
    stranger.key("nextn_predict_layers", 1_u32);
    assert!(refusal(&stranger).contains("not known of architecture qwen3moe"));
}
