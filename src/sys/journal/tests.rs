use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::sys::leftovers::remove_leftovers;
use crate::sys::rename::crash;

fn contents(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

/// Commits three files over some old ones and dies after so many steps; says whether it died.
fn commit_and_die(folder: &Path, steps: u32) -> bool {
    let targets = ["a", "b", "c"].map(|name| folder.join(name));
    let hidden = targets.each_ref().map(|target| {
        let (mut file, path) = staging::create(target, Kind::Partial).unwrap();
        file.write_all(b"new").unwrap();
        (file, path)
    });
    let ready: Vec<_> = targets
        .iter()
        .zip(&hidden)
        .map(|(target, (file, hidden))| StagedFile { file, hidden, target })
        .collect();
    crash::after(Some(steps));
    let died = catch_unwind(AssertUnwindSafe(|| commit(folder, &ready, true).unwrap())).is_err();
    crash::after(None);
    died
}

#[test]
fn a_commit_that_dies_at_any_step_is_taken_back_or_done() {
    for old in [&[][..], &["a"], &["b", "c"], &["a", "b", "c"]] {
        let (mut rolled_back, mut done) = (0, 0);
        for steps in 0.. {
            let folder = tempfile::tempdir().unwrap();
            for name in old {
                fs::write(folder.path().join(name), format!("old {name}")).unwrap();
            }
            let before = contents(folder.path());
            let died = commit_and_die(folder.path(), steps);
            // A process that is alive sees none of its files taken; a dead one leaves none.
            remove_leftovers(folder.path()).unwrap();
            let after = contents(folder.path());
            let new = ["a", "b", "c"].map(|name| (OsString::from(name), b"new".to_vec())).into();
            if after == before {
                assert_eq!(done, 0, "{steps}");
                rolled_back += 1;
            } else {
                assert_eq!(after, new, "{steps}");
                done += 1;
            }
            if !died {
                break;
            }
        }
        // A step for each old and each new file and one before the journal goes; one after that, and the end.
        assert_eq!((rolled_back, done), (old.len() + 3 + 1, 2));
    }
}

#[test]
fn a_file_that_is_not_ours_is_never_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b"), "old b").unwrap();
    // All but the last of the new files are in place.
    assert!(commit_and_die(folder.path(), 3));
    fs::write(folder.path().join("c.tmp"), "another").unwrap();
    fs::rename(folder.path().join("c.tmp"), folder.path().join("c")).unwrap();
    remove_leftovers(folder.path()).unwrap();
    let expected = [("b", "old b"), ("c", "another")].map(|(name, text)| (name.into(), text.into()));
    assert_eq!(contents(folder.path()), BTreeMap::from(expected));
}

fn entries() -> Vec<Entry> {
    let new = Fingerprint { inode: u64::MAX, bytes: 7, modified: (-5, 999_999_999) };
    let entry = |n: u8| Entry {
        new,
        old: format!(".a\n{n}.moeslice-h-b-12-{n}.old").into(),
        target: OsString::from_vec(vec![b'a', 0xff, b'\n', b'0' + n]),
    };
    vec![entry(0), entry(1)]
}

#[test]
fn a_journal_reads_back() {
    assert_eq!(decode(&encode(&entries())), Some(entries()));
    assert_eq!(decode(&encode(&[])), Some(Vec::new()));
}

#[test]
fn a_journal_that_lacks_its_end_lists_nothing() {
    let bytes = encode(&entries());
    for end in 0..bytes.len() {
        assert_eq!(decode(&bytes[..end]), None, "cut at {end}");
    }
}

#[test]
fn a_journal_cannot_name_files_elsewhere() {
    for target in ["../x", "/etc/passwd", "..", "."] {
        let mut entries = entries();
        entries[0].target = target.into();
        assert_eq!(decode(&encode(&entries)), None, "{target}");
    }
    let mut entries = entries();
    entries[0].old = "precious".into();
    assert_eq!(decode(&encode(&entries)), None);
}

/// A journal of a dead run over `entries`.
fn leave_journal(folder: &Path, entries: &[Entry]) -> std::path::PathBuf {
    let (mut journal, path) = staging::create(&folder.join("a"), Kind::Journal).unwrap();
    write(&mut journal, entries).unwrap();
    path
}

/// The entry of a group whose new file never came to its place.
fn entry_without_new(folder: &Path, target: &str) -> Entry {
    Entry {
        new: Fingerprint { inode: 0, bytes: 0, modified: (0, 0) },
        old: staging::hidden_name(&folder.join(target), Kind::Old).file_name().unwrap().to_owned(),
        target: target.into(),
    }
}

#[test]
fn an_old_file_with_both_names_keeps_the_visible_one() {
    let folder = tempfile::tempdir().unwrap();
    let entry = entry_without_new(folder.path(), "a");
    fs::write(folder.path().join("a"), "old a").unwrap();
    fs::hard_link(folder.path().join("a"), folder.path().join(&entry.old)).unwrap();
    leave_journal(folder.path(), &[entry]);
    let found = remove_leftovers(folder.path()).unwrap();
    assert_eq!((found.rolled_back, found.left.len()), (1, 0), "{found:?}");
    assert_eq!(contents(folder.path()), BTreeMap::from([("a".into(), b"old a".to_vec())]));
}

#[test]
fn one_entry_that_cannot_be_mended_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let entries = ["a", "b", "c"].map(|name| entry_without_new(folder.path(), name));
    for entry in &entries {
        fs::write(folder.path().join(&entry.old), [b"old ", entry.target.as_bytes()].concat()).unwrap();
    }
    fs::write(folder.path().join("b"), "another's").unwrap();
    leave_journal(folder.path(), &entries);
    let found = remove_leftovers(folder.path()).unwrap();
    assert_eq!((found.rolled_back, found.removed, found.left.len()), (0, 0, 1), "{found:?}");
    assert!(found.left[0].why.contains("what b was before"), "{found:?}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!((read("a"), read("b"), read("c")), ("old a".into(), "another's".into(), "old c".into()));
    // Once the name is free, the next run mends the rest.
    fs::remove_file(folder.path().join("b")).unwrap();
    let found = remove_leftovers(folder.path()).unwrap();
    assert_eq!((found.rolled_back, found.left.len()), (1, 0), "{found:?}");
    let expected = ["a", "b", "c"].map(|name| (OsString::from(name), format!("old {name}").into_bytes()));
    assert_eq!(contents(folder.path()), BTreeMap::from(expected));
}
