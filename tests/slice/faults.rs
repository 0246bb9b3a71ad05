use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use moeslice::gguf::GgufError;
use moeslice::progress::OnUpdate;
use moeslice::slice::{Options, SliceError, check, prune};
use moeslice::sys::FileError;

use crate::child;
use crate::sample::{Random, Sample, Source, contents, names};

#[test]
fn source_that_shrinks_is_reported_with_the_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.gguf");
    let source = Source::of(Sample::plain(2, 6, 2).write(&path));
    let keep = source.random_keep(4, &mut Random(1));
    let size = fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    let mut calls = 0;
    let result = prune(
        &source.cut(&keep),
        &folder.path().join("cut.gguf"),
        &Options::default(),
        &mut OnUpdate(|_, _| {
            calls += 1;
            if calls == 5 {
                file.set_len(size * 2 / 3).unwrap();
            }
        }),
    );
    let error = result.unwrap_err();
    let SliceError::Model(GgufError::FileShrank { tensor, position, .. }) = &error else { panic!("{error}") };
    assert!(tensor.starts_with("blk.1.ffn_"), "{tensor}");
    assert_eq!(*position, size * 2 / 3);
    assert_eq!(names(folder.path()), ["base.gguf"]);
}

#[test]
fn source_written_to_meanwhile_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.gguf");
    let source = Source::of(Sample::plain(1, 6, 2).write(&path));
    let keep = source.random_keep(4, &mut Random(1));
    let file = File::options().write(true).open(&path).unwrap();
    // The clock that files are stamped by has a coarse tick.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    file.set_modified(old).unwrap();
    let position = fs::metadata(&path).unwrap().len() - 1;
    let result = prune(
        &source.cut(&keep),
        &folder.path().join("cut.gguf"),
        &Options::default(),
        &mut OnUpdate(|_, _| {
            file.write_all_at(&[1], position).unwrap();
        }),
    );
    assert!(matches!(result, Err(SliceError::SourceChanged { .. })), "{result:?}");
    assert_eq!(names(folder.path()), ["base.gguf"]);
}

#[test]
fn folder_that_takes_no_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::of(Sample::plain(1, 6, 2).write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(4, &mut Random(1));
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not bind root, whom the kernel's own file system refuses all the same.
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let closed = if root { Path::new("/sys") } else { &closed };
    let error = source.prune(&keep, &closed.join("cut.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::Create { .. })), "{error}");
    let error = check(&source.cut(&keep), &closed.join("cut.gguf"), &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::Create { .. })), "{error}");
    let missing = folder.path().join("missing/cut.gguf");
    let error = source.prune(&keep, &missing, &Options::default()).unwrap_err();
    assert!(matches!(error, SliceError::File(FileError::NoFolder { .. })), "{error}");
}

#[test]
fn file_size_limit_is_an_error_and_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    Sample::plain(2, 6, 2).write(&folder.path().join("base.gguf"));
    let before = contents(folder.path());
    let (model, output) = (folder.path().join("base.gguf"), folder.path().join("cut.gguf"));
    let starter = ["sh", "-c", "ulimit -f 16; exec \"$0\" \"$@\""];
    let status = child::through(&starter, &model, &output).status().unwrap();
    assert_eq!(child::code(status), child::SIZE_LIMIT, "{status}");
    assert_eq!(contents(folder.path()), before);
    assert_eq!(child::code(child::command(&model, &output).status().unwrap()), child::DONE);
}

#[test]
fn full_disk_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("base.gguf");
    let source = Source::of(Sample::plain(2, 6, 2).write(&model));
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    // A disk of 1 MiB that only the child sees, where the system lets us have one.
    let script = format!("mount -t tmpfs -o size=1m tmpfs '{}' && exec \"$0\" \"$@\"", disk.display());
    let starter = ["unshare", "--mount", "--map-root-user", "sh", "-c", &script];
    match child::through(&starter, &model, &disk.join("cut.gguf")).status() {
        Ok(status)
            if [child::NO_ROOM, child::LEFTOVERS, child::DONE, child::OTHER]
                .contains(&child::code(status)) =>
        {
            assert_eq!(child::code(status), child::NO_ROOM, "{status}");
        }
        other => eprintln!("no tmpfs could be mounted ({other:?}); a size no disk has is tried alone"),
    }
    // More than any disk has: the model of a sparse file, whose cut would be as large.
    let keep = source.random_keep(4, &mut Random(1));
    let outputs = check(&source.cut(&keep), &folder.path().join("cut.gguf"), &Options::default()).unwrap();
    assert!(outputs.bytes() <= outputs.free);
    let path = folder.path().join("huge");
    let needed = outputs.free.saturating_add(1 << 40);
    let error = moeslice::sys::check_room(folder.path(), &[(&path, needed)]).unwrap_err();
    assert!(matches!(error, FileError::NoRoom { .. }), "{error}");
}
