//! What is written gets its name only when it is true, and what is there stays until then.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use moeslice::gguf::{Model, OwnedValue, TensorInfo, TensorType, Value, ValueType, shard_path};
use moeslice::moe::ShardPolicy;
use moeslice::progress::{Interrupt, OnUpdate, Progress, Silent, Unit};
use moeslice::slice::{Options, SliceError, VerifyError, Where, check, prune, verify};
use moeslice::sys::FileError;

use crate::child;
use crate::oracle::assert_is_cut;
use crate::sample::{Random, Sample, Source, contents, names};

/// Does something when a stage begins.
struct AtStage<F>(&'static str, F);

impl<F: FnMut()> Progress for AtStage<F> {
    fn begin(&mut self, stage: &str, _: Unit) {
        if stage == self.0 {
            (self.1)();
        }
    }
    fn update(&mut self, _: u64, _: u64) {}
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// The hidden file that is being written in a folder.
fn hidden(folder: &Path) -> PathBuf {
    let name = names(folder).into_iter().find(|name| name.ends_with(".partial"));
    folder.join(name.expect("a hidden file"))
}

fn source(folder: &Path) -> Source {
    Source::of(Sample::plain(2, 6, 2).write(&folder.join("base.gguf")))
}

#[test]
fn a_comparison_that_fails_leaves_what_was_there() {
    for old in [None, Some(b"the good one".as_slice())] {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path());
        let keep = source.random_keep(4, &mut Random(1));
        let output = folder.path().join("cut.gguf");
        if let Some(old) = old {
            fs::write(&output, old).unwrap();
        }
        let before = contents(folder.path());
        // What a bad disk does: another byte than was written.
        let mut damage = AtStage("verifying", || {
            let file = File::options().read(true).write(true).open(hidden(folder.path())).unwrap();
            let end = file.metadata().unwrap().len();
            let mut last = [0];
            file.read_exact_at(&mut last, end - 1).unwrap();
            file.write_all_at(&[!last[0]], end - 1).unwrap();
        });
        let options = Options { force: true, ..Options::default() };
        let error = prune(&source.cut(&keep), &output, &options, &mut damage).unwrap_err();
        let SliceError::NotTrue { path, error } = &error else { panic!("{error}") };
        assert_eq!(path, &output);
        assert!(matches!(**error, VerifyError::Differs(_)), "{error}");
        assert_eq!(contents(folder.path()), before);
        // The same without the damage.
        let written = prune(&source.cut(&keep), &output, &options, &mut Silent).unwrap();
        assert_eq!(written.verified.unwrap().kept, keep);
        assert_is_cut(&source.model, &Model::open(&output).unwrap(), &keep);
    }
}

/// What the disk loses while the rest is still written: the first half of the file is compared by then.
#[test]
fn a_byte_that_changes_behind_the_writer_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::of(Sample::plain(1, 256, 2).write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(192, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    // More than twice what is handed over at once. The byte changes just before the part that it is in is handed over.
    let (part, mut changed) = (16 << 20, None);
    let mut damage = OnUpdate(|done, total| {
        assert!(total > 2 * part);
        if done >= part && changed.is_none() {
            let file = File::options().read(true).write(true).open(hidden(folder.path())).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, part / 2).unwrap();
            file.write_all_at(&[!byte[0]], part / 2).unwrap();
            changed = Some(done);
        }
    });
    let error = prune(&source.cut(&keep), &output, &Options::default(), &mut damage).unwrap_err();
    let SliceError::NotTrue { error, .. } = &error else { panic!("{error}") };
    let VerifyError::Differs(differences) = &**error else { panic!("{error}") };
    assert!(matches!(differences.first.place, Where::Slab { .. }), "{differences}");
    assert_eq!(differences.others, 0);
    assert_eq!(names(folder.path()), ["base.gguf"]);
}

#[test]
#[cfg(target_os = "linux")]
fn the_comparison_reads_the_disk() {
    // Not the folder for temporary files, which is often memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = Sample::plain(1, 64, 2).write(&folder.path().join("base.gguf"));
    let output = folder.path().join("cut.gguf");
    let told = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(folder.path()).output();
    let file_system = String::from_utf8(told.unwrap().stdout).unwrap();
    let counts_reads = ["ext2/ext3", "xfs", "btrfs"].contains(&file_system.trim());
    let mut command = child::command(model.path(), &output);
    let code = child::code(child::from_disk(&mut command).status().unwrap());
    assert!(!counts_reads || code == child::DONE, "{code}");
    // Without the comparison, next to nothing of what was written is read again.
    let code = child::code(child::uncompared(&mut command).status().unwrap());
    assert!(!counts_reads || code == child::NOT_FROM_DISK, "{code}");
}

/// A way in which somebody else changes a file of the model: its content, with its times set back, or its name.
type Change = (&'static str, fn(&Path));

fn changes() -> [Change; 3] {
    [
        ("written to", |path| {
            let file = File::options().write(true).open(path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(&[7], fs::metadata(path).unwrap().len() - 1).unwrap();
            file.set_modified(modified).unwrap();
        }),
        ("replaced", |path| {
            let other = path.with_extension("other");
            fs::copy(path, &other).unwrap();
            fs::rename(&other, path).unwrap();
        }),
        ("removed", |path| fs::remove_file(path).unwrap()),
    ]
}

#[test]
fn a_source_that_changed_since_it_was_opened_is_noticed() {
    for (what, change) in changes() {
        for stage in ["before", "writing", "verifying"] {
            let folder = tempfile::tempdir().unwrap();
            let source = source(folder.path());
            let keep = source.random_keep(4, &mut Random(1));
            let output = folder.path().join("cut.gguf");
            // The clock that files are stamped by has a coarse tick.
            std::thread::sleep(std::time::Duration::from_millis(20));
            if stage == "before" {
                change(source.model.path());
                let checked = check(&source.cut(&keep), &output, &Options::default());
                assert!(matches!(checked, Err(SliceError::SourceChanged { .. })), "{what} {stage}");
            }
            let mut change_then = AtStage(stage, || change(source.model.path()));
            let result = prune(&source.cut(&keep), &output, &Options::default(), &mut change_then);
            match result {
                Err(SliceError::SourceChanged { path }) => assert_eq!(path, source.model.path()),
                other => panic!("{what} {stage}: {other:?}"),
            }
            assert!(!output.exists());
            assert!(names(folder.path()).iter().all(|name| name == "base.gguf"), "{what} {stage}");
        }
    }
}

#[test]
fn a_shard_that_changed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::of(Sample::plain(2, 6, 2).write_shards(&folder.path().join("base"), &[4, 7, 3]));
    let keep = source.random_keep(4, &mut Random(1));
    let shard = shard_path(&folder.path().join("base"), 2, 3);
    fs::set_permissions(&shard, fs::Permissions::from_mode(0o600)).unwrap();
    let other = shard.with_extension("other");
    fs::copy(&shard, &other).unwrap();
    fs::rename(&other, &shard).unwrap();
    let error = source.prune(&keep, &folder.path().join("cut.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(&error, SliceError::SourceChanged { path } if *path == shard), "{error}");
}

#[test]
fn a_cut_is_as_private_as_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.gguf");
    let model = Sample::plain(1, 6, 2).write(&base);
    drop(model);
    fs::set_permissions(&base, fs::Permissions::from_mode(0o600)).unwrap();
    let source = Source::open(&base);
    let keep = source.random_keep(4, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    source.prune(&keep, &output, &Options::default()).unwrap();
    assert_eq!(mode(&output), 0o600);
    // What is replaced keeps its own.
    fs::set_permissions(&output, fs::Permissions::from_mode(0o644)).unwrap();
    let force = Options { force: true, ..Options::default() };
    source.prune(&keep, &output, &force).unwrap();
    assert_eq!(mode(&output), 0o644);
}

#[test]
fn files_of_another_run_beside_the_output_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let keep = source.random_keep(4, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    let options = |shards| Options { force: true, shards, ..Options::default() };
    let beside = |shards| {
        let written = source.prune(&keep, &output, &options(shards)).unwrap();
        let names = written.beside.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        (written.files.len(), names.collect::<Vec<_>>())
    };
    let (count, others) = beside(ShardPolicy::Size(600_000));
    assert!(count > 1);
    assert_eq!(others, Vec::<String>::new());
    let (_, others) = beside(ShardPolicy::Single);
    assert_eq!(others.len(), count);
    assert!(others[0].starts_with("cut-00001-of-"), "{others:?}");
    let (more, others) = beside(ShardPolicy::Size(300_000));
    assert!(more > count);
    assert_eq!((others.len(), others.last().unwrap().as_str()), (count + 1, "cut.gguf"));
    // Nothing that the user did not name was touched.
    assert_eq!(names(folder.path()).len(), 1 + 1 + count + more);
}

#[test]
fn a_name_of_a_shard_is_taken_at_its_word_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let keep = source.random_keep(4, &mut Random(1));
    let named = folder.path().join("cut-00001-of-00001.gguf");
    source.prune(&keep, &named, &Options::default()).unwrap();
    assert_eq!(names(folder.path()), ["base.gguf", "cut-00001-of-00001.gguf"]);
    let other = folder.path().join("cut-00001-of-00013.gguf");
    let error = source.prune(&keep, &other, &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::ShardName { count: 1, .. }), "{error}");
}

#[test]
fn a_dangling_link_is_checked_where_the_bytes_go() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path());
    let keep = source.random_keep(4, &mut Random(1));
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let link = folder.path().join("cut.gguf");
    std::os::unix::fs::symlink("disk/real.gguf", &link).unwrap();
    source.prune(&keep, &link, &Options::default()).unwrap();
    assert_eq!(names(&disk), ["real.gguf"]);
    assert!(link.is_symlink());
    let far = folder.path().join("far.gguf");
    std::os::unix::fs::symlink("missing/real.gguf", &far).unwrap();
    let error = check(&source.cut(&keep), &far, &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::NoFolder { .. })), "{error}");
}

#[test]
fn texts_that_are_no_text_are_cut_with_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::plain(1, 6, 2);
    sample.metadata.set("general.architecture", "qwen3moe\0");
    sample.metadata.set("general.name", OwnedValue::Bytes(b"caf\xe9 \x1b[31m".to_vec()));
    let tokens = [b"\xff".to_vec(), b"a\0".to_vec(), b"fine".to_vec()].map(OwnedValue::Bytes).to_vec();
    sample.metadata.set("tokenizer.ggml.tokens", OwnedValue::Array(ValueType::String, tokens));
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    assert_eq!(source.experts.architecture, "qwen3moe");
    let keep = source.random_keep(4, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    source.prune(&keep, &output, &Options::default()).unwrap();
    let pruned = Model::open(&output).unwrap();
    for key in ["general.architecture", "general.name", "tokenizer.ggml.tokens"] {
        assert_eq!(pruned.metadata().raw(key), source.model.metadata().raw(key), "{key}");
    }
    assert_eq!(pruned.metadata().get("qwen3moe.expert_count"), Some(Value::U32(4)));
    verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
}

/// A model of at least `count` shards.
fn write_shards(folder: &Path, count: usize) -> PathBuf {
    let mut sample = Sample::plain(1, 4, 2);
    for index in 0..count {
        let info = TensorInfo::new(format!("extra.{index}"), vec![8], TensorType::I8).unwrap();
        sample.tensors.push((info, vec![1; 8]));
    }
    let model = sample.write_shards(&folder.join("base"), &vec![1; sample.tensors.len()]);
    model.path().to_owned()
}

#[test]
fn a_limit_on_open_files_is_raised_or_told_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let model = write_shards(folder.path(), 150);
    let out = tempfile::tempdir().unwrap();
    let output = out.path().join("cut.gguf");
    for (limits, code) in [
        ("ulimit -Sn 128", child::DONE),
        // Enough to open the model, and too few to write as many shards.
        ("ulimit -Sn 128; ulimit -Hn 400", child::TOO_MANY_FILES),
        ("ulimit -n 128", child::TOO_MANY_FILES),
    ] {
        let script = format!("{limits}; exec \"$0\" \"$@\"");
        let status = child::through(&["sh", "-c", &script], &model, &output).status().unwrap();
        assert_eq!(child::code(status), code, "{limits}");
        let written = if code == child::DONE { Model::open(&model).unwrap().shards().len() } else { 0 };
        assert_eq!(names(out.path()).len(), written, "{limits}");
        names(out.path()).iter().for_each(|name| fs::remove_file(out.path().join(name)).unwrap());
    }
}

#[test]
#[ignore = "thousands of files have to reach the disk"]
fn two_thousand_shards_are_cut_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::open(&write_shards(folder.path(), 2000));
    let keep = source.random_keep(3, &mut Random(1));
    let out = tempfile::tempdir().unwrap();
    let written = match source.prune(&keep, &out.path().join("cut.gguf"), &Options::default()) {
        Ok(written) => written,
        // Refused beforehand where the system allows no more.
        Err(SliceError::File(FileError::Descriptors { needed, limit })) => {
            assert!(needed > limit && names(out.path()).is_empty());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(written.files.len() > 2000);
    let pruned = Model::open(&written.files[0].0).unwrap();
    verify(&source.model, &pruned, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap();
}
