use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::gguf::{Model, TensorType, shard_path};
use crate::moe::Identity;
use crate::moe::test_model::TestModel;

fn of(model: &TestModel) -> Identity {
    let opened = model.open();
    Identity::of(&opened.model, &opened.experts()).expect("an identity")
}

/// The same model in two shards, the second of which begins at tensor `at`.
fn of_split(model: &TestModel, at: usize) -> Identity {
    let folder = TempDir::new().expect("a folder for temporary files");
    let prefix = folder.path().join("model");
    for (no, tensors) in [&model.tensors[..at], &model.tensors[at..]].into_iter().enumerate() {
        let mut shard = model.clone();
        if no > 0 {
            shard.metadata = crate::gguf::Metadata::new();
        }
        shard.tensors = tensors.to_vec();
        shard.metadata.set("split.no", crate::gguf::OwnedValue::U16(no as u16));
        shard.metadata.set("split.count", crate::gguf::OwnedValue::U16(2));
        shard.metadata.set("split.tensors.count", model.tensors.len() as i32);
        shard.write(&shard_path(&prefix, no as u16, 2));
    }
    let model = Model::open(&shard_path(&prefix, 1, 2)).expect("a split model");
    let experts = crate::moe::Experts::read(&model).expect("a model with experts");
    Identity::of(&model, &experts).expect("an identity")
}

#[test]
fn split_and_merged_copies_have_one_identity() {
    let model = TestModel::plain("qwen3moe", 3, 4, 2);
    let whole = of(&model);
    for at in [0, 1, 7, model.tensors.len() - 1] {
        assert_eq!(of_split(&model, at), whole, "split at {at}");
    }
    let mut merged = model.clone();
    merged.metadata.set("split.count", crate::gguf::OwnedValue::U16(0));
    assert_eq!(of(&merged), whole);
}

#[test]
fn other_quantisation_has_the_same_router_hash() {
    let model = TestModel::plain("qwen3moe", 2, 4, 2);
    let mut other = model.clone();
    for (info, data) in &mut other.tensors {
        if info.name.ends_with("_exps.weight") {
            info.ty = TensorType::F16;
            data.truncate(data.len() / 2);
        }
    }
    let (one, other) = (of(&model), of(&other));
    assert_eq!(one.router_hash, other.router_hash);
    assert_ne!(one.fingerprint, other.fingerprint);
}

#[test]
fn other_model_has_another_router_hash() {
    let model = TestModel::plain("qwen3moe", 2, 4, 2);
    let mut other = model.clone();
    let router = other.tensors.iter_mut().rfind(|(info, _)| info.name.ends_with("ffn_gate_inp.weight"));
    *router.expect("a router").1.last_mut().expect("some bytes") ^= 1;
    let (one, other) = (of(&model), of(&other));
    assert_ne!(one.router_hash, other.router_hash);
    assert_eq!(one.fingerprint, other.fingerprint, "the fingerprint is over the header alone");
}

#[test]
fn fingerprint_depends_on_metadata_names_shapes_and_order() {
    let model = TestModel::plain("qwen3moe", 2, 4, 2);
    let whole = of(&model).fingerprint;
    let changes: [fn(&mut TestModel); 4] = [
        |f| f.metadata.set("general.name", "another"),
        |f| f.tensors.swap(1, 2),
        |f| f.tensors[0].0.name = "token_embd2.weight".into(),
        |f| f.tensors[0].0.dims.swap(0, 1),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut other = model.clone();
        change(&mut other);
        assert_ne!(of(&other).fingerprint, whole, "change {at}");
    }
}

#[test]
fn router_hash_matches_its_description() {
    let model = TestModel::plain("qwen3moe", 2, 4, 2);
    let mut hash = Sha256::new();
    for (info, data) in &model.tensors {
        if info.name.ends_with("ffn_gate_inp.weight") {
            hash.update((info.name.len() as u64).to_le_bytes());
            hash.update(&info.name);
            hash.update((data.len() as u64).to_le_bytes());
            hash.update(data);
        }
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let identity = of(&model);
    assert_eq!(identity.router_hash, format!("sha256:{hex}"));
    assert_eq!((identity.n_layer, identity.n_expert, identity.n_expert_used), (2, 4, 2));
    assert_eq!(identity.expert_layers, [0, 1]);
}

#[test]
fn routers_above_the_chunk_size_are_hashed_whole() {
    let wide = |change: usize| {
        let mut model = TestModel::new("qwen3moe", 1, 4, 2);
        model.part(0, "ffn_gate_inp.weight", &[100_000, 4]);
        model.part(0, "ffn_up_exps.weight", &[6, 5, 4]).part(0, "ffn_down_exps.weight", &[5, 6, 4]);
        model.tensors[1].1[change] ^= 1;
        of(&model).router_hash
    };
    assert_ne!(wide(0), wide(1_599_999));
    assert_ne!(wide(1 << 20), wide((1 << 20) - 1));
}
