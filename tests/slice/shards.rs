use std::fs;
use std::path::{Path, PathBuf};

use moeslice::gguf::{Model, Value, shard_path};
use moeslice::moe::{PrunedShape, ShardPolicy};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{Options, SliceError, verify};
use moeslice::sys::FileError;

use crate::oracle::{assert_is_cut, assert_metadata};
use crate::sample::{Random, Sample, Source, contents, names};

fn options(shards: ShardPolicy) -> Options {
    Options { shards, ..Options::default() }
}

/// Two layers of five tensors each; the experts of the first lie in two shards.
fn split(folder: &Path, tensors: &[usize]) -> (Sample, Source) {
    let sample = Sample::plain(2, 6, 2);
    let model = sample.write_shards(&folder.join("base"), tensors);
    (sample, Source::of(model))
}

fn split_keys(path: &Path) -> [Option<u64>; 3] {
    let header = moeslice::gguf::Header::parse(&fs::File::open(path).unwrap(), path).unwrap();
    ["split.no", "split.count", "split.tensors.count"].map(|key| header.metadata.get(key)?.as_u64())
}

#[test]
fn shards_stay_shards() {
    for tensors in [[4, 7, 3], [0, 9, 5]] {
        let folder = tempfile::tempdir().unwrap();
        let (sample, source) = split(folder.path(), &tensors);
        let keep = source.random_keep(4, &mut Random(4));
        let written = source.prune(&keep, &folder.path().join("cut.gguf"), &Options::default()).unwrap();
        let expected: Vec<PathBuf> = (0..3).map(|i| shard_path(&folder.path().join("cut"), i, 3)).collect();
        assert_eq!(written.files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), expected);
        for (index, path) in expected.iter().enumerate() {
            assert_eq!(split_keys(path), [Some(index as u64), Some(3), Some(sample.tensors.len() as u64)]);
        }
        // By the name of any of them.
        let pruned = Model::open(&expected[2]).unwrap();
        let held: Vec<usize> = pruned.shards().iter().map(|shard| shard.header.tensors.len()).collect();
        assert_eq!(held, tensors);
        assert_is_cut(&source.model, &pruned, &keep);
        assert_metadata(source.model.metadata(), pruned.metadata(), 4, &[]);
        verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
        assert_eq!(names(folder.path()).len(), 6);
    }
}

#[test]
fn keep_all_leaves_the_other_shards_identical() {
    let folder = tempfile::tempdir().unwrap();
    let (_, source) = split(folder.path(), &[4, 7, 3]);
    let output = folder.path().join("cut.gguf");
    source.prune(&source.keep_all(), &output, &Options::default()).unwrap();
    for index in [1, 2] {
        let bytes = |name: &str| fs::read(shard_path(&folder.path().join(name), index, 3)).unwrap();
        assert!(bytes("base") == bytes("cut"), "shard {index}");
    }
}

#[test]
fn shards_become_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let (sample, source) = split(folder.path(), &[4, 7, 3]);
    let keep = source.random_keep(4, &mut Random(4));
    let output = folder.path().join("cut.gguf");
    source.prune(&keep, &output, &options(ShardPolicy::Single)).unwrap();
    assert_eq!(split_keys(&output), [None; 3]);
    let pruned = Model::open(&output).unwrap();
    assert_is_cut(&source.model, &pruned, &keep);
    verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();

    // The same as the cut of a model that never was in shards.
    let other = tempfile::tempdir().unwrap();
    let whole = Source::of(sample.write(&other.path().join("base.gguf")));
    whole.prune(&keep, &other.path().join("cut.gguf"), &Options::default()).unwrap();
    assert!(fs::read(other.path().join("cut.gguf")).unwrap() == fs::read(&output).unwrap());
}

#[test]
fn single_file_becomes_shards_of_a_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(2, 6, 2);
    sample.metadata.set("general.alignment", 4096_u32);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(4, &mut Random(4));
    let shape = PrunedShape::new(&source.model, &source.experts, &keep, &source.provenance).unwrap();
    let largest = shape.tensors.iter().map(|info| info.bytes()).max().unwrap();
    let whole = shape.file_bytes(ShardPolicy::Single).unwrap()[0];
    // From shards of one tensor each to one file.
    for limit in [1, largest / 2, largest + 8192, 2 * largest + 8192, whole - 1, whole] {
        let out = tempfile::tempdir().unwrap();
        let written = source.prune(&keep, &out.path().join("cut.gguf"), &options(ShardPolicy::Size(limit)));
        let written = written.unwrap();
        assert_eq!(
            written.files.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(),
            shape.file_bytes(ShardPolicy::Size(limit)).unwrap()
        );
        let pruned = Model::open(&written.files[0].0).unwrap();
        for (index, (path, bytes)) in written.files.iter().enumerate() {
            let shard = &pruned.shards()[index];
            assert_eq!((&shard.path, shard.size), (path, *bytes));
            assert_eq!(shard.header.alignment, 4096);
            assert!(*bytes <= limit || shard.header.tensors.len() == usize::from(index > 0), "{limit}");
        }
        match written.files.len() {
            1 => assert_eq!(written.files[0].0, out.path().join("cut.gguf")),
            n => assert!(n >= 2 && whole > limit),
        }
        assert_is_cut(&source.model, &pruned, &keep);
        verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
    }
}

#[test]
fn a_key_that_only_looks_like_one_of_shards_is_a_key_like_all() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(2, 6, 2);
    sample.metadata.set("split.note", 7_u32);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(4, &mut Random(4));
    for (name, shards) in [("whole.gguf", ShardPolicy::Single), ("cut.gguf", ShardPolicy::Size(600_000))] {
        let written = source.prune(&keep, &folder.path().join(name), &options(shards)).unwrap();
        let pruned = Model::open(&written.files[0].0).unwrap();
        assert_eq!(pruned.shards().len() > 1, name == "cut.gguf");
        assert_eq!(pruned.metadata().get("split.note"), Some(Value::U32(7)));
        verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
    }
    // It is compared as all are.
    sample.metadata.set("split.note", 8_u32);
    let other = sample.write(&folder.path().join("other.gguf"));
    let whole = Model::open(&folder.path().join("whole.gguf")).unwrap();
    let error = verify(&other, &whole, None, &mut Silent, Interrupt::NEVER).unwrap_err().to_string();
    assert!(error.contains("split.note"), "{error}");
}

#[test]
fn metadata_above_the_shard_size_get_a_shard_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(1, 6, 2);
    sample.metadata.set("tokenizer.chat_template", "x".repeat(3 << 20));
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(4, &mut Random(4));
    let output = folder.path().join("cut.gguf");
    let written = source.prune(&keep, &output, &options(ShardPolicy::Size(1 << 20))).unwrap();
    let pruned = Model::open(&written.files[1].0).unwrap();
    assert!(pruned.shards()[0].header.tensors.is_empty());
    assert!(written.files[1..].iter().all(|(_, bytes)| *bytes <= 1 << 20));
    assert_is_cut(&source.model, &pruned, &keep);
}

#[test]
fn shards_change_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let (_, source) = split(folder.path(), &[1, 10, 3]);
    let keep = source.random_keep(3, &mut Random(4));
    let output = folder.path().join("cut.gguf");
    let written = source.prune(&keep, &output, &options(ShardPolicy::Size(400_000))).unwrap();
    assert!(written.files.len() > 3, "{:?}", written.files);
    let pruned = Model::open(&written.files[1].0).unwrap();
    assert_eq!(pruned.metadata().get("split.count"), Some(Value::U16(written.files.len() as u16)));
    assert_is_cut(&source.model, &pruned, &keep);
    verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
}

#[test]
fn one_existing_shard_stops_all() {
    let folder = tempfile::tempdir().unwrap();
    let (_, source) = split(folder.path(), &[4, 7, 3]);
    let keep = source.random_keep(4, &mut Random(4));
    let output = folder.path().join("cut.gguf");
    fs::write(shard_path(&folder.path().join("cut"), 1, 3), b"precious").unwrap();
    let before = contents(folder.path());
    let error = source.prune(&keep, &output, &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::Exists { .. })), "{error}");
    assert_eq!(contents(folder.path()), before);
    source.prune(&keep, &output, &Options { force: true, ..Options::default() }).unwrap();
    let pruned = Model::open(&shard_path(&folder.path().join("cut"), 0, 3)).unwrap();
    assert_is_cut(&source.model, &pruned, &keep);
    assert_eq!(names(folder.path()).len(), 6);
}

#[test]
fn shard_of_the_model_as_output_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_, source) = split(folder.path(), &[4, 7, 3]);
    let keep = source.random_keep(4, &mut Random(4));
    let before = contents(folder.path());
    let force = |shards| Options { force: true, shards, ..Options::default() };
    // By the prefix, and by the name of the first shard.
    for name in ["base.gguf", "base-00001-of-00003.gguf", "base"] {
        let error = source.prune(&keep, &folder.path().join(name), &force(ShardPolicy::Keep)).unwrap_err();
        assert!(matches!(error, SliceError::SameFile { .. }), "{error}");
    }
    std::os::unix::fs::symlink("base-00003-of-00003.gguf", folder.path().join("link.gguf")).unwrap();
    let link = folder.path().join("link.gguf");
    let error = source.prune(&keep, &link, &force(ShardPolicy::Single)).unwrap_err();
    assert!(matches!(error, SliceError::SameFile { .. }), "{error}");
    fs::remove_file(link).unwrap();
    assert_eq!(contents(folder.path()), before);
}
