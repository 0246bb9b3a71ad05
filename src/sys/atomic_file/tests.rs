use super::*;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt, symlink};

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn write(target: &Path, bytes: &[u8], replace: bool) -> AtomicFile {
    let file = AtomicFile::create(target, replace).unwrap();
    file.reserve(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

#[test]
fn file_becomes_visible_at_commit() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a");
    let file = write(&target, b"new", false);
    assert!(!target.exists());
    file.commit().unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn dropped_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(write(&folder.path().join("a"), b"new", false));
    assert!(names(folder.path()).is_empty());
}

#[test]
fn existing_file_stays_unless_replacement_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a");
    fs::write(&target, b"old").unwrap();
    let error = AtomicFile::create(&target, false).unwrap_err();
    assert!(matches!(error, FileError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&target).unwrap(), b"old");
    write(&target, b"new", true).commit().unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn file_that_appears_meanwhile_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a");
    let file = write(&target, b"new", false);
    fs::write(&target, b"other").unwrap();
    assert!(matches!(file.commit(), Err(FileError::Exists { .. })));
    assert_eq!(fs::read(&target).unwrap(), b"other");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn link_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, here) = (folder.path().join("disk"), folder.path().join("here"));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&here).unwrap();
    symlink("../disk/real", here.join("link")).unwrap();
    write(&here.join("link"), b"one", false).commit().unwrap();
    write(&here.join("link"), b"two", true).commit().unwrap();
    assert_eq!(fs::read(disk.join("real")).unwrap(), b"two");
    assert!(here.join("link").is_symlink());
    symlink("loop", here.join("loop")).unwrap();
    assert!(matches!(AtomicFile::create(&here.join("loop"), true), Err(FileError::Write { .. })));
}

#[test]
fn folder_and_missing_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = AtomicFile::create(folder.path(), true).unwrap_err();
    assert!(matches!(error, FileError::NotAFile { .. }), "{error}");
    let error = AtomicFile::create(&folder.path().join("no/such"), true).unwrap_err();
    assert!(matches!(error, FileError::NoFolder { .. }), "{error}");
    let error = AtomicFile::create(&folder.path().join("n".repeat(256)), true).unwrap_err();
    assert!(matches!(error, FileError::Write { .. }), "{error}");
    for path in ["", "/", ".."] {
        let error = AtomicFile::create(Path::new(path), true).unwrap_err();
        assert!(matches!(error, FileError::NotAFile { .. }), "{error}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn file_larger_than_free_space_is_refused_with_both_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let file = AtomicFile::create(&folder.path().join("a"), false).unwrap();
    let needed = space::free_bytes(folder.path()).unwrap() + (1 << 40);
    let error = file.reserve(needed).unwrap_err();
    // Which of the two depends on the largest file that the file system allows.
    assert!(matches!(error, FileError::NoRoom { .. } | FileError::TooLarge { .. }), "{error}");
}

fn group(folder: &Path, replace: bool) -> Vec<AtomicFile> {
    ["a", "b", "c"].map(|name| write(&folder.join(name), format!("new {name}").as_bytes(), replace)).into()
}

fn contents(folder: &Path) -> Vec<(String, String)> {
    let read = |name: OsString| {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        (name.into_string().unwrap(), text)
    };
    names(folder).into_iter().map(read).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
}

#[test]
fn group_becomes_visible_together() {
    let folder = tempfile::tempdir().unwrap();
    let new = pairs(&[("a", "new a"), ("b", "new b"), ("c", "new c")]);
    commit_all(group(folder.path(), false)).unwrap();
    assert_eq!(contents(folder.path()), new);
    fs::remove_file(folder.path().join("c")).unwrap();
    fs::write(folder.path().join("b"), "old").unwrap();
    commit_all(group(folder.path(), true)).unwrap();
    assert_eq!(contents(folder.path()), new);
}

#[test]
fn group_that_meets_an_existing_file_is_rolled_back() {
    for name in ["a", "b", "c"] {
        let folder = tempfile::tempdir().unwrap();
        let files = group(folder.path(), false);
        fs::write(folder.path().join(name), "old").unwrap();
        assert!(matches!(commit_all(files), Err(FileError::Exists { .. })));
        assert_eq!(contents(folder.path()), pairs(&[(name, "old")]));
    }
}

#[test]
fn group_that_cannot_replace_one_file_restores_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "old a").unwrap();
    fs::write(folder.path().join("b"), "old b").unwrap();
    let files = group(folder.path(), true);
    fs::create_dir(folder.path().join("c")).unwrap();
    assert!(matches!(commit_all(files), Err(FileError::NotAFile { .. })));
    fs::remove_dir(folder.path().join("c")).unwrap();
    assert_eq!(contents(folder.path()), pairs(&[("a", "old a"), ("b", "old b")]));
}

#[test]
fn group_whose_hidden_file_vanished_is_rolled_back() {
    for index in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "old b").unwrap();
        let files = group(folder.path(), true);
        fs::remove_file(&files[index].hidden).unwrap();
        assert!(matches!(commit_all(files), Err(FileError::Rename { .. })));
        assert_eq!(contents(folder.path()), pairs(&[("b", "old b")]));
    }
}

#[test]
fn group_in_two_folders_is_refused() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = vec![write(&a.path().join("a"), b"1", false), write(&b.path().join("b"), b"1", false)];
    assert!(matches!(commit_all(files), Err(FileError::Folders { .. })));
    assert!(names(a.path()).is_empty() && names(b.path()).is_empty());
}

#[test]
fn small_files_and_devices_are_written_in_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("u.json");
    write_atomic(&path, b"{}", false).unwrap();
    write_atomic(&path, b"", true).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    write_atomic(Path::new("/dev/null"), b"{}", false).unwrap();
    let error = write_atomic(Path::new("/dev/full"), b"{}", false).unwrap_err();
    assert!(matches!(error, FileError::Write { .. }), "{error}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_file_has_the_permissions_of_its_source_less_the_mask() {
    let folder = tempfile::tempdir().unwrap();
    let (source, plain) = (folder.path().join("source"), folder.path().join("plain"));
    File::create(&plain).unwrap();
    for wanted in [0o600, 0o640, 0o444, 0o755] {
        File::create(&source).unwrap().set_permissions(fs::Permissions::from_mode(wanted)).unwrap();
        let target = folder.path().join("new");
        let file = write(&target, b"1", false).like(&File::open(&source).unwrap()).unwrap();
        assert_eq!(mode(&file.hidden), 0o600);
        file.commit().unwrap();
        // The mask is whatever it is here: a file that is created plainly shows what it takes away.
        let mask = !mode(&plain) & 0o666;
        assert_eq!(mode(&target) & !0o111, wanted & !mask & !0o111, "{wanted:o}");
        fs::remove_file(&source).unwrap();
        fs::remove_file(&target).unwrap();
    }
    write(&folder.path().join("other"), b"1", false).commit().unwrap();
    assert_eq!(mode(&folder.path().join("other")), mode(&plain));
}

#[test]
fn a_file_that_is_replaced_keeps_its_permissions() {
    for several in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        fs::write(&target, b"old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o604)).unwrap();
        let source = File::open(&target).unwrap();
        let file = write(&target, b"new", true).like(&source).unwrap();
        match several {
            false => file.commit().unwrap(),
            true => commit_all(vec![file, write(&folder.path().join("b"), b"new", true)]).unwrap(),
        }
        assert_eq!((mode(&target), fs::read(&target).unwrap()), (0o604, b"new".to_vec()));
    }
}

#[test]
fn a_dangling_link_leads_to_the_folder_that_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    symlink("disk/real", folder.path().join("link")).unwrap();
    assert_eq!(check_target(&folder.path().join("link"), false).unwrap(), folder.path().join("disk/real"));
    symlink("missing/real", folder.path().join("far")).unwrap();
    let error = check_target(&folder.path().join("far"), false).unwrap_err();
    assert!(matches!(&error, FileError::NoFolder { folder } if folder.ends_with("missing")), "{error}");
}

#[test]
fn a_size_that_the_file_system_refuses_is_told_apart_from_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let file = AtomicFile::create(&folder.path().join("a"), false).unwrap();
    let error = file.explain(io::Error::from_raw_os_error(libc::EFBIG), 5 << 30);
    assert!(matches!(error, FileError::TooLarge { needed, .. } if needed == 5 << 30), "{error}");
}
