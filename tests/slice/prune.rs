use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use moeslice::gguf::{Model, TensorType, Value};
use moeslice::moe::{KeptError, KeptExperts, Provenance, PrunedError};
use moeslice::progress::{Interrupt, OnUpdate, Silent};
use moeslice::slice::{Options, SliceError, check, prune, verify};
use moeslice::sys::FileError;

use crate::oracle::{self, assert_is_cut, assert_metadata};
use crate::sample::{Extras, Random, Sample, Source, contents, names};

#[test]
fn cut_has_the_kept_experts_and_all_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::new("qwen3moe", 3, 12, 2, 1);
    sample.metadata.set("general.alignment", 64_u32);
    sample.tensor("blk.0.ffn_up.weight", &[256, 512], TensorType::Q4_K);
    sample.layer(1, 12, TensorType::Q4_K, Extras { shared: true, ..Extras::default() });
    sample.layer(2, 12, TensorType::Q6_K, Extras { scales: true, ..Extras::default() });
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = KeptExperts::from([(1, vec![0, 1, 2, 5, 9, 11]), (2, vec![3, 4, 6, 7, 8, 10])]);
    let output = folder.path().join("cut.gguf");
    let mut steps = Vec::new();
    let written = prune(
        &source.cut(&keep),
        &output,
        &Options { verify: false, ..Options::default() },
        &mut OnUpdate(|done, total| {
            steps.push((done, total));
        }),
    );
    let written = written.unwrap();

    let pruned = Model::open(&output).unwrap();
    assert_is_cut(&source.model, &pruned, &keep);
    assert_metadata(source.model.metadata(), pruned.metadata(), 6, &[]);
    assert_eq!(pruned.alignment(), 64);
    assert_eq!(written.files, [(output.clone(), fs::metadata(&output).unwrap().len())]);
    assert_eq!(oracle::ids(&pruned, 1), keep[1]);
    assert_eq!(written.ids.layer(2), Some(&keep[2]));
    assert_eq!(pruned.metadata().get("moeslice.expert_count_original"), Some(Value::U32(12)));
    assert_eq!(Provenance::read(pruned.metadata()), Some(source.provenance.clone()));
    assert!(steps.is_sorted(), "{steps:?}");
    assert_eq!(steps.last(), Some(&(written.bytes(), written.bytes())));
    assert_eq!(names(folder.path()), ["base.gguf", "cut.gguf"]);

    let verified = verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
    assert_eq!(verified.tensors, pruned.tensors().len() as u64);
    assert_eq!(verified.slabs, 6 * 4 + 6 * 10);
    assert_eq!(verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap().kept, keep);
}

#[test]
fn keep_all_changes_provenance_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(2, 5, 2);
    sample.metadata.set("general.size_label", "5x1M");
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let output = folder.path().join("cut.gguf");
    source.prune(&source.keep_all(), &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    assert_metadata(source.model.metadata(), pruned.metadata(), 5, &[]);
    let infos = |model: &Model| model.tensors().iter().map(|t| t.info.clone()).collect::<Vec<_>>();
    assert_eq!(infos(&source.model), infos(&pruned));
    let data = |model: &Model, path| {
        let bytes: Vec<u8> = fs::read(path).unwrap();
        bytes[model.shards()[0].header.data_offset as usize..].to_vec()
    };
    assert!(data(&source.model, source.model.path()) == data(&pruned, output.as_path()));
}

#[test]
fn original_ids_compose_over_two_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut random = Random(3);
    let first = Source::of(Sample::plain(3, 20, 2).write(&path("base.gguf")));
    let keep = first.random_keep(13, &mut random);
    first.prune(&keep, &path("a.gguf"), &Options::default()).unwrap();
    let second = Source::open(&path("a.gguf"));
    let keep_of_kept = second.random_keep(7, &mut random);
    second.prune(&keep_of_kept, &path("b.gguf"), &Options::default()).unwrap();
    let twice = Model::open(&path("b.gguf")).unwrap();

    let direct: KeptExperts = keep_of_kept
        .iter()
        .map(|(layer, ids)| (layer, ids.iter().map(|&id| keep[layer][id as usize]).collect()))
        .collect();
    assert_is_cut(&first.model, &twice, &direct);
    for (layer, ids) in direct.iter() {
        assert_eq!(&oracle::ids(&twice, layer), ids);
    }
    let provenance = Provenance::read(twice.metadata()).unwrap();
    assert_eq!(provenance.original_fingerprint, first.provenance.source_fingerprint);
    assert_eq!(provenance.source_fingerprint, second.provenance.source_fingerprint);
    assert_ne!(provenance.source_fingerprint, provenance.original_fingerprint);
    // Of both models that it comes from.
    assert_eq!(
        verify(&second.model, &twice, None, &mut Silent, Interrupt::NEVER).unwrap().kept,
        keep_of_kept
    );
    assert_eq!(verify(&first.model, &twice, None, &mut Silent, Interrupt::NEVER).unwrap().kept, direct);
}

#[test]
fn unknown_tensor_as_long_as_the_kept_experts_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(1, 6, 2);
    sample.tensor("blk.0.mystery.weight", &[2, 3], TensorType::F32);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(3, &mut Random(5));
    let out = folder.path().join("cut.gguf");
    source.prune(&keep, &out, &Options::default()).unwrap();
    let cut = Source::open(&out);
    moeslice::slice::verify(&source.model, &cut.model, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
    // Nor of a second cut.
    let again = cut.random_keep(2, &mut Random(6));
    cut.prune(&again, &folder.path().join("again.gguf"), &Options::default()).unwrap();
}

#[test]
fn hash_tables_follow_the_kept_experts() {
    let folder = tempfile::tempdir().unwrap();
    let (n_expert, n_expert_used) = (10, 3);
    let mut sample = Sample::new("deepseek4", 2, n_expert, n_expert_used, 5);
    sample.key("hash_layer_count", 1_u32);
    sample.hash_layer(0, n_expert_used);
    sample.layer(1, n_expert, TensorType::Q8_0, Extras { selection_bias: true, ..Extras::default() });
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(6, &mut Random(8));
    let output = folder.path().join("cut.gguf");
    source.prune(&keep, &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    assert_is_cut(&source.model, &pruned, &keep);
    let table = |model: &Model| -> Vec<Vec<i32>> {
        let tensor = model.tensor("blk.0.ffn_gate_tid2eid.weight").unwrap();
        let entries: Vec<i32> = oracle::data(model, tensor)
            .chunks_exact(4)
            .map(|entry| i32::from_le_bytes(entry.try_into().unwrap()))
            .collect();
        entries.chunks_exact(n_expert_used as usize).map(<[i32]>::to_vec).collect()
    };
    let mut replaced = 0;
    for (before, after) in table(&source.model).iter().zip(table(&pruned)) {
        for (old, new) in before.iter().zip(&after) {
            match keep[0].iter().position(|id| *id == *old as u32) {
                Some(position) => assert_eq!(*new, position as i32),
                None => {
                    replaced += 1;
                    assert!((0..6).contains(new));
                }
            }
        }
        let distinct: std::collections::BTreeSet<_> = after.iter().collect();
        assert_eq!(distinct.len(), after.len(), "{before:?} → {after:?}");
    }
    assert!(replaced > 0);
    verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
}

#[test]
fn hash_table_with_unknown_expert_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::new("deepseek4", 1, 10, 3, 5);
    sample.key("hash_layer_count", 1_u32);
    sample.hash_layer(0, 3);
    let (_, table) = sample.tensors.last_mut().unwrap();
    table[4 * 3 * 7 + 4..][..4].copy_from_slice(&10_i32.to_le_bytes());
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(6, &mut Random(8));
    let error = source.prune(&keep, &folder.path().join("cut.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::HashTable { token: 7, id: 10, n_expert: 10, .. }), "{error}");
    assert_eq!(names(folder.path()), ["base.gguf"]);
}

#[test]
fn layers_with_fewer_experts_stay_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::new("nemotron_h_moe", 3, 12, 2, 5);
    let extras = Extras { no_gate: true, selection_bias: true, ..Extras::default() };
    for (layer, n) in [(0, 12), (1, 4), (2, 9)] {
        sample.layer(layer, n, TensorType::Q8_0, extras);
    }
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(7, &mut Random(1));
    assert_eq!(keep[1], [0, 1, 2, 3]);
    let output = folder.path().join("cut.gguf");
    source.prune(&keep, &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    assert_is_cut(&source.model, &pruned, &keep);
    assert_metadata(source.model.metadata(), pruned.metadata(), 7, &[]);
    verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
}

#[test]
fn size_label_follows_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(1, 8, 2);
    sample.metadata.set("general.size_label", "8x0.2M");
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let output = folder.path().join("cut.gguf");
    source.prune(&source.random_keep(6, &mut Random(1)), &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    assert_eq!(pruned.metadata().get("general.size_label"), Some(Value::String("6x0.2M")));
    assert_metadata(source.model.metadata(), pruned.metadata(), 6, &["general.size_label"]);
}

#[test]
fn impossible_choices_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(2, 8, 2);
    sample.key("expert_group_count", 2_u32).key("expert_group_used_count", 1_u32);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let refuse = |lists: &[(u32, &[u32])]| {
        let keep = lists.iter().map(|&(layer, ids)| (layer, ids.to_vec())).collect();
        match check(&source.cut(&keep), &folder.path().join("cut.gguf"), &Options::default()) {
            Err(SliceError::Shape { error: PrunedError::Kept(error), .. }) => error,
            other => panic!("{other:?}"),
        }
    };
    let ok: &[u32] = &[0, 1, 4, 5];
    assert!(matches!(refuse(&[(0, ok)]), KeptError::MissingLayer { layer: 1, n_expert: 8 }));
    assert!(matches!(refuse(&[(0, ok), (1, ok), (2, ok)]), KeptError::ExtraLayer { layer: 2, .. }));
    assert!(matches!(refuse(&[(0, ok), (1, &[0, 1, 4, 8])]), KeptError::Id { layer: 1, id: 8, .. }));
    let twice = refuse(&[(0, ok), (1, &[0, 1, 1, 4])]);
    assert!(matches!(twice, KeptError::Twice { layer: 1, id: 1 }));
    assert!(matches!(refuse(&[(0, ok), (1, &[1, 0, 4, 5])]), KeptError::Order { layer: 1, .. }));
    let uneven = refuse(&[(0, ok), (1, &[0, 1, 2, 4, 5, 6])]);
    assert!(matches!(uneven, KeptError::Uneven { layer: 1, kept: 6, wanted: 4, .. }), "{uneven}");
    let uneven = refuse(&[(0, ok), (1, &[0, 1, 2, 4])]);
    assert!(matches!(uneven, KeptError::UnevenGroups { layer: 1, group: 0, kept: 3, .. }), "{uneven}");
    assert!(matches!(refuse(&[(0, &[]), (1, &[])]), KeptError::Count(_)));
    assert!(matches!(refuse(&[(0, &[0, 1]), (1, &[0, 1])]), KeptError::Count(_)));
}

#[test]
fn model_as_its_own_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let source = Source::of(Sample::plain(1, 4, 2).write(&path("base.gguf")));
    let keep = source.random_keep(3, &mut Random(1));
    fs::hard_link(path("base.gguf"), path("hard.gguf")).unwrap();
    std::os::unix::fs::symlink("base.gguf", path("soft.gguf")).unwrap();
    fs::create_dir(path("sub")).unwrap();
    let before = bytes_of(&source);
    for name in ["base.gguf", "./base.gguf", "sub/../base.gguf", "hard.gguf", "soft.gguf"] {
        for force in [false, true] {
            let options = Options { force, ..Options::default() };
            let error = source.prune(&keep, &path(name), &options).unwrap_err();
            assert!(matches!(error, SliceError::SameFile { .. }), "{error}");
        }
    }
    assert_eq!(bytes_of(&source), before);
    assert_eq!(names(folder.path()), ["base.gguf", "hard.gguf", "soft.gguf", "sub"]);
}

fn bytes_of(source: &Source) -> Vec<u8> {
    fs::read(source.model.path()).unwrap()
}

#[test]
fn existing_output_stays_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::of(Sample::plain(1, 4, 2).write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(3, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    fs::write(&output, b"precious").unwrap();
    let before = contents(folder.path());
    let error = source.prune(&keep, &output, &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::Exists { .. })), "{error}");
    assert_eq!(contents(folder.path()), before);
    source.prune(&keep, &output, &Options { force: true, ..Options::default() }).unwrap();
    assert_is_cut(&source.model, &Model::open(&output).unwrap(), &keep);
}

#[test]
fn interrupted_cut_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::of(Sample::plain(2, 6, 2).write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(4, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    // At each step of the work.
    let mut steps = 0;
    loop {
        let flag: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let options = Options { interrupt: Interrupt::when(flag), ..Options::default() };
        let mut step = 0;
        let result = prune(
            &source.cut(&keep),
            &output,
            &options,
            &mut OnUpdate(|_, _| {
                step += 1;
                flag.store(step > steps, Ordering::Relaxed);
            }),
        );
        match result {
            Err(SliceError::Interrupted) => assert_eq!(names(folder.path()), ["base.gguf"]),
            Err(other) => panic!("{other}"),
            Ok(_) => break,
        }
        steps += 1;
    }
    assert!(steps > 20, "{steps}");
    assert_is_cut(&source.model, &Model::open(&output).unwrap(), &keep);
}

#[test]
fn check_refuses_an_alignment_below_32() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(1, 4, 2);
    sample.metadata.set("general.alignment", 8_u32);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(3, &mut Random(1));
    let error = check(&source.cut(&keep), &folder.path().join("cut.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::Alignment { alignment: 8, .. }), "{error}");
}
