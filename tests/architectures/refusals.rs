//! What cannot be cut right is refused with the reason, and nothing is written.

use crate::proof::choose;
use crate::support::isolated;
use crate::support::random::Random;
use crate::support::recipe::Recipe;
use crate::support::tiny::TinyModel;
use moeslice::arch::ProfilePass;
use moeslice::evaluate::ExpertMask;
use moeslice::gguf::{Model, OwnedValue, TensorInfo, TensorType};
use moeslice::moe::{Experts, Identity, KeptExperts, Provenance};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{self, Cut, Options};
use std::path::Path;

/// A model on disk that llama.cpp need not load.
struct OnDisk {
    folder: tempfile::TempDir,
    model: Model,
}

impl OnDisk {
    fn new(tiny: &TinyModel) -> OnDisk {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("base.gguf");
        tiny.write(&path);
        OnDisk { model: Model::open(&path).expect("a model that we read"), folder }
    }

    fn experts(&self) -> Result<Experts, String> {
        Experts::read(&self.model).map_err(|error| error.to_string())
    }

    /// The reason why a cut to `kept` is refused; nothing may have been written.
    fn refusal(&self, kept: &KeptExperts) -> String {
        let error = self.cut(kept).expect_err("a cut that is refused");
        let files = std::fs::read_dir(self.folder.path()).expect("the folder").count();
        assert_eq!(files, 1, "only the model itself is there after: {error}");
        error
    }

    fn cut(&self, kept: &KeptExperts) -> Result<(), String> {
        let experts = self.experts()?;
        let identity = Identity::of(&self.model, &experts).expect("an identity");
        let provenance = Provenance::new(&self.model, &identity, "frequency", "test", Vec::new());
        let cut = Cut { model: &self.model, experts: &experts, keep: kept, provenance };
        let path = self.folder.path().join("cut.gguf");
        slice::prune(&cut, &path, &Options::default(), &mut Silent).map_err(|error| error.to_string())?;
        let pruned = Model::open(&path).map_err(|error| error.to_string())?;
        slice::verify(&self.model, &pruned, Some(kept), &mut Silent, Interrupt::NEVER)
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}

fn plain(architecture: &str) -> TinyModel {
    crate::tiny(&Recipe::of(architecture))
}

/// The first `k` experts of every layer.
fn first(experts: &Experts, k: u32) -> KeptExperts {
    experts.layers.iter().map(|layer| (layer.layer, (0..k).collect())).collect()
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn chunk_experts_are_refused() {
    let model = OnDisk::new(&plain("grovemoe"));
    let experts = model.experts().expect("it can be looked at");
    assert!(experts.chunks);
    assert_eq!(experts.possible_counts(), [8]);
    let kept = first(&experts, 6);
    assert_says(&model.refusal(&kept), &["grovemoe", "chunk", "renumbers"]);
    let mask = ExpertMask::new(&experts, &kept).err().expect("no mask").to_string();
    assert_says(&mask, &["chunk"]);
    let pass = experts.arch.expect("a row").profile;
    assert!(matches!(pass, ProfilePass::Impossible(_)));
}

/// Chunk experts count, not the name of the architecture.
#[test]
fn chunk_experts_in_any_architecture_are_refused() {
    let mut tiny = plain("qwen3moe");
    tiny.add("blk.0.ffn_up_chexps.weight", &[128, 32, 4], TensorType::F32);
    let model = OnDisk::new(&tiny);
    let experts = model.experts().expect("it can be looked at");
    assert_says(&model.refusal(&first(&experts, 6)), &["chunk experts"]);
}

#[test]
fn experts_without_a_router_are_refused() {
    let model = OnDisk::new(&plain("refact"));
    let experts = model.experts().expect("it can be looked at");
    assert_says(&model.refusal(&first(&experts, 6)), &["refact", "no router"]);
}

#[test]
fn llama4_refuses_cuts_from_or_to_128() {
    for (n_expert, k) in [(128, 64), (160, 128)] {
        let mut recipe = Recipe::of("llama4");
        recipe.experts(n_expert, 1);
        let model = OnDisk::new(&crate::tiny(&recipe));
        let experts = model.experts().expect("it can be looked at");
        assert_says(&model.refusal(&first(&experts, k)), &["llama4", "128 experts", "queries and keys"]);
    }
}

#[test]
fn unknown_tensors_that_may_be_experts_are_refused() {
    let refused = [
        ("blk.1.ffn_novelty.weight", vec![16, 8], "outermost dimension is 8"),
        ("blk.1.ffn_novelty.weight", vec![16, 8, 1], "outermost dimension is 8"),
        ("blk.1.ffn_mid_exps.weight", vec![16, 16, 5], "by its name"),
        ("blk.1.exp_probs_c.bias", vec![5], "by its name"),
        ("blk.1.ffn_gate_inp_2.weight", vec![16, 5], "by its name"),
    ];
    for (name, dims, why) in refused {
        let mut tiny = plain("qwen3moe");
        tiny.add(name, &dims, TensorType::F32);
        assert_says(&OnDisk::new(&tiny).experts().expect_err("refused"), &[name, why]);
    }
    // Unknown, but nothing in it can count experts.
    let mut tiny = plain("qwen3moe");
    tiny.add("blk.1.ffn_novelty.weight", &[8, 16], TensorType::F32);
    OnDisk::new(&tiny).experts().expect("a tensor that is copied");
}

#[test]
fn known_tensors_of_expert_size_stay_whole() {
    let mut tiny = plain("qwen3moe");
    let names =
        ["attn_sinks.weight", "ffn_gate_inp_shexp.weight", "ffn_norm_exps.weight", "attn_v_exps.weight"];
    for part in names {
        tiny.add(&format!("blk.1.{part}"), &[16, 8], TensorType::F32);
    }
    let model = OnDisk::new(&tiny);
    let experts = model.experts().expect("known names");
    let indices: Vec<usize> =
        experts.layers.iter().flat_map(|layer| layer.tensors.iter().map(|tensor| tensor.index)).collect();
    for index in indices {
        let name = &model.model.tensors()[index].info.name;
        assert!(!names.iter().any(|part| name.ends_with(part)), "{name}");
    }
    model.cut(&first(&experts, 6)).expect("a cut that leaves them whole");
}

#[test]
fn one_tensor_per_expert_is_refused() {
    let mut tiny = plain("llama");
    tiny.add("blk.0.ffn_gate.0.weight", &[128, 64], TensorType::F32);
    let error = OnDisk::new(&tiny).experts().expect_err("refused");
    assert_says(&error, &["blk.0.ffn_gate.0.weight", "single expert", "convert"]);
}

#[test]
fn groups_of_unequal_counts_are_refused() {
    let mut recipe = Recipe::of("deepseek2");
    recipe.experts(16, 3).set("expert_group_count", 4_u32).set("expert_group_used_count", 2_u32);
    let model = OnDisk::new(&crate::tiny(&recipe));
    let experts = model.experts().expect("groups");
    assert_eq!(experts.possible_counts(), [8, 12, 16]);
    let even = choose(&experts, 8, 0);
    let mut uneven = even.clone();
    uneven.insert(2, vec![0, 1, 2, 4, 8, 9, 12, 13]);
    assert_says(&model.refusal(&uneven), &["layer 2: group 0", "keeps 3", "2"]);
    assert!(ExpertMask::new(&experts, &uneven).is_err());
    model.cut(&even).expect("the same number of each group");
}

#[test]
fn expert_counts_that_disagree_are_refused() {
    let mut tiny = plain("qwen3moe");
    tiny.metadata.set("qwen3moe.expert_count", 9_u32);
    assert_says(&OnDisk::new(&tiny).experts().expect_err("refused"), &["8 experts", "9"]);
}

#[test]
fn hash_table_with_unknown_expert_is_refused() {
    let mut tiny = plain("deepseek4");
    let (_, data) = tiny
        .tensors
        .iter_mut()
        .find(|(info, _)| info.name == "blk.0.ffn_gate_tid2eid.weight")
        .expect("a table");
    data[4 * 3 * 7..][..4].copy_from_slice(&8_i32.to_le_bytes());
    let model = OnDisk::new(&tiny);
    let experts = model.experts().expect("the table is not read yet");
    assert_says(&model.refusal(&first(&experts, 6)), &["tid2eid", "token 7", "expert 8 of 8"]);
}

/// The rows of a cut table hold distinct ids of kept experts, those of kept ones unchanged but for their numbers.
#[test]
fn hash_table_is_rewritten_to_kept_ids() {
    let tiny = plain("deepseek4");
    let model = OnDisk::new(&tiny);
    let experts = model.experts().expect("experts");
    let kept = choose(&experts, 5, 3);
    model.cut(&kept).expect("a cut");
    let path = model.folder.path().join("cut.gguf");
    let cut = Model::open(&path).expect("the cut file");
    let bytes = std::fs::read(&path).expect("its bytes");
    let table = cut.tensor("blk.0.ffn_gate_tid2eid.weight").expect("a table");
    let after = &bytes[table.file_offset as usize..][..table.info.bytes() as usize];
    let (_, before) = tiny.tensor("blk.0.ffn_gate_tid2eid.weight").expect("a table");
    let ids = |row: &[u8]| -> Vec<u32> {
        row.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("4 bytes"))).collect()
    };
    for (before, after) in before.chunks_exact(12).zip(after.chunks_exact(12)) {
        let (before, after) = (ids(before), ids(after));
        for (place, (old, new)) in before.iter().zip(&after).enumerate() {
            assert!(*new < 5 && !after[..place].contains(new), "{before:?} became {after:?}");
            if let Ok(stays) = kept[0].binary_search(old) {
                assert_eq!(*new as usize, stays, "{before:?} became {after:?}");
            }
        }
    }
}

/// An architecture that the table does not know is read by the general rules, which say so.
#[test]
fn unknown_architecture_is_cut_by_the_general_rules() {
    let mut tiny = plain("qwen3moe");
    let renamed: Vec<(String, OwnedValue)> = tiny
        .metadata
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("qwen3moe.")?.to_owned(), value.into())))
        .collect();
    for (key, value) in renamed {
        tiny.metadata.remove(&format!("qwen3moe.{key}"));
        tiny.metadata.set(&format!("qwen9moe.{key}"), value);
    }
    tiny.metadata.set("general.architecture", "qwen9moe");
    let model = OnDisk::new(&tiny);
    let experts = model.experts().expect("the general rules");
    assert!(experts.arch.is_none());
    let kept = choose(&experts, 6, 0);
    assert!(!ExpertMask::new(&experts, &kept).expect("a mask by the general rules").is_proven());
    model.cut(&kept).expect("a cut by the general rules");
    tiny.add("blk.0.ffn_future_exps.weight", &[8, 8, 8], TensorType::F32);
    assert_says(&OnDisk::new(&tiny).experts().expect_err("refused"), &["ffn_future_exps"]);
}

/// A mask for layers that the graph never shows is a mask of nothing.
#[test]
fn mask_that_never_took_hold_is_reported() {
    let model = OnDisk::new(&plain("qwen3moe"));
    let experts = model.experts().expect("experts");
    let mask = ExpertMask::new(&experts, &first(&experts, 6)).expect("a mask");
    assert_says(&mask.check_reached().expect_err("nothing ran").to_string(), &["layer 0", "not masked"]);
    let whole = ExpertMask::new(&experts, &first(&experts, 8)).expect("a mask of nothing");
    whole.check_reached().expect("no expert was to be masked");
}

/// A child that llama.cpp ends does not take the test run with it, and tells who it was.
#[test]
fn child_that_aborts_is_named() {
    let error = isolated::run("child", "dense hrm_text", &[]).expect_err("llama.cpp asserts");
    assert_says(&error, &["dense hrm_text", "llama.cpp gave up", "GGML_ASSERT"]);
}

/// The tests' own numbers are the same in every run.
#[test]
fn tiny_models_are_the_same_in_every_run() {
    let bytes = |path: &Path| {
        plain("llama").write(path);
        std::fs::read(path).expect("a model")
    };
    let folder = tempfile::tempdir().expect("a folder");
    assert!(bytes(&folder.path().join("a.gguf")) == bytes(&folder.path().join("b.gguf")));
    let info = TensorInfo::new("x", vec![32, 2], TensorType::Q8_0).expect("a tensor");
    assert_eq!(crate::support::tiny::random_bytes(&info, 1).len(), 68);
    assert_ne!(Random::of(0, "a").bits(), Random::of(0, "b").bits());
}
