//! Several files that become visible together, or not at all.
//!
//! No file system renames several files in one step. Before the first rename, a journal beside the targets lists them
//! all; it goes when the last one is in place. A run that finds the journal of a dead one puts everything back as it
//! was before that run. Readers open a group by its first file, so that one goes first and comes last.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::error::FileError;
use super::rename::{rename_new, sync_file, sync_folder};
use super::staging::{self, Kind};

/// The first and last bytes of a whole journal.
const BEGIN: &[u8] = b"moeslice commit 1";
const END: &[u8] = b"end";

/// Journals beyond this size are not ours.
const MAX_BYTES: u64 = 64 << 20;

/// A file of the group, by names in the folder of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// What tells the new file from any other that may come to bear the target's name.
    new: Fingerprint,
    /// The name under which the old file waits, should there be one.
    old: OsString,
    target: OsString,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// A new file of a group: complete, synced, still under its hidden name.
pub(super) struct StagedFile<'a> {
    pub(super) file: &'a File,
    pub(super) hidden: &'a Path,
    pub(super) target: &'a Path,
}

/// Makes the files of a group in one folder visible. On failure everything is as it was before.
pub(super) fn commit(folder: &Path, files: &[StagedFile<'_>], replace: bool) -> Result<(), FileError> {
    let Some(first) = files.first() else { return Ok(()) };
    let failed = |error| FileError::Rename { path: first.target.to_owned(), error };
    let entries = files.iter().map(entry_of).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let (mut journal, journal_path) = staging::create(first.target, Kind::Journal).map_err(failed)?;
    let written = write(&mut journal, &entries).and_then(|()| sync_folder(&journal_path));
    let done = written.map_err(failed).and_then(|()| move_all(folder, files, &entries, replace));
    if let Err(error) = done {
        // Should this fail as well, the journal stays for the next run to try again.
        put_back(folder, &entries).and_then(|()| fs::remove_file(&journal_path)).map_err(failed)?;
        return Err(error);
    }
    #[cfg(test)]
    super::rename::crash::point();
    // From here on the new files are the valid ones.
    fs::remove_file(&journal_path).map_err(failed)?;
    sync_folder(&journal_path).map_err(failed)?;
    #[cfg(test)]
    super::rename::crash::point();
    for entry in &entries {
        // Left behind, it would go with the next run's leftovers.
        let _ = fs::remove_file(folder.join(&entry.old));
    }
    Ok(())
}

fn entry_of(file: &StagedFile<'_>) -> io::Result<Entry> {
    let name = |path: &Path| path.file_name().map(OsStr::to_owned).unwrap_or_default();
    Ok(Entry {
        new: Fingerprint::of(&file.file.metadata()?),
        old: name(&staging::hidden_name(file.target, Kind::Old)),
        target: name(file.target),
    })
}

fn move_all(
    folder: &Path,
    files: &[StagedFile<'_>],
    entries: &[Entry],
    replace: bool,
) -> Result<(), FileError> {
    for (file, entry) in files.iter().zip(entries) {
        match file.target.symlink_metadata() {
            Ok(_) if !replace => return Err(FileError::Exists { path: file.target.to_owned() }),
            Ok(found) if !found.is_file() => {
                return Err(FileError::NotAFile { path: file.target.to_owned() });
            }
            Ok(_) => rename_new(file.target, &folder.join(&entry.old)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| FileError::Rename { path: file.target.to_owned(), error })?;
    }
    for file in files.iter().rev() {
        rename_new(file.hidden, file.target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: file.target.to_owned() },
            _ => FileError::Rename { path: file.target.to_owned(), error },
        })?;
    }
    sync_folder(files[0].target)
        .map_err(|error| FileError::Rename { path: files[0].target.to_owned(), error })
}

/// Puts back what the journal of a dead run lists.
pub(super) fn roll_back(mut journal: &File, folder: &Path) -> io::Result<()> {
    let mut bytes = Vec::new();
    journal.seek(SeekFrom::Start(0))?;
    journal.take(MAX_BYTES).read_to_end(&mut bytes)?;
    match decode(&bytes) {
        Some(entries) => put_back(folder, &entries),
        // Nothing is renamed before the journal is whole.
        None => Ok(()),
    }
}

/// Removes new files that are in place, then moves old files back into theirs.
fn put_back(folder: &Path, entries: &[Entry]) -> io::Result<()> {
    for entry in entries {
        let target = folder.join(&entry.target);
        match target.symlink_metadata() {
            Ok(found) if Fingerprint::of(&found) == entry.new => fs::remove_file(&target)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // The first file last here too: with it the group is readable again.
    for entry in entries.iter().rev() {
        match rename_new(&folder.join(&entry.old), &folder.join(&entry.target)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_folder(&folder.join("."))
}

fn write(journal: &mut File, entries: &[Entry]) -> io::Result<()> {
    journal.write_all(&encode(entries))?;
    sync_file(journal)
}

/// Fields end with NUL, which no file name holds.
fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = BEGIN.to_vec();
    for Entry { new, old, target } in entries {
        let Fingerprint { device, inode, bytes: size, modified: (seconds, nanoseconds) } = new;
        bytes.extend(format!("\0{device} {inode} {size} {seconds} {nanoseconds}\0").as_bytes());
        bytes.extend(old.as_bytes());
        bytes.push(0);
        bytes.extend(target.as_bytes());
    }
    bytes.push(0);
    bytes.extend(END);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let rest = bytes.strip_prefix(BEGIN)?.strip_prefix(b"\0")?.strip_suffix(END)?;
    let Some(rest) = rest.strip_suffix(b"\0") else { return rest.is_empty().then(Vec::new) };
    let fields: Vec<&[u8]> = rest.split(|&byte| byte == 0).collect();
    if !fields.len().is_multiple_of(3) {
        return None;
    }
    fields.chunks_exact(3).map(|fields| decode_entry(fields[0], fields[1], fields[2])).collect()
}

fn decode_entry(numbers: &[u8], old: &[u8], target: &[u8]) -> Option<Entry> {
    let mut numbers = std::str::from_utf8(numbers).ok()?.split(' ');
    let mut number = || numbers.next();
    let new = Fingerprint {
        device: number()?.parse().ok()?,
        inode: number()?.parse().ok()?,
        bytes: number()?.parse().ok()?,
        modified: (number()?.parse().ok()?, number()?.parse().ok()?),
    };
    let name = |bytes: &[u8]| {
        let plain = !bytes.is_empty() && !bytes.contains(&b'/') && bytes != b"." && bytes != b"..";
        plain.then(|| OsString::from_vec(bytes.to_vec()))
    };
    let (old, target) = (name(old)?, name(target)?);
    let is_old = staging::parse_hidden(&old).is_some_and(|(kind, _)| kind == Kind::Old);
    is_old.then_some(Entry { new, old, target })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::leftovers::remove_leftovers;
    use super::super::rename::crash;
    use super::*;

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
    fn commit_that_dies_at_any_step_is_rolled_back_or_done() {
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
    fn foreign_file_is_never_rolled_back() {
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
        let new = Fingerprint { device: 1, inode: u64::MAX, bytes: 7, modified: (-5, 999_999_999) };
        let entry = |n: u8| Entry {
            new,
            old: format!(".a\n{n}.moeslice-12-{n}.old").into(),
            target: OsString::from_vec(vec![b'a', 0xff, b'\n', b'0' + n]),
        };
        vec![entry(0), entry(1)]
    }

    #[test]
    fn journal_is_read_back() {
        assert_eq!(decode(&encode(&entries())), Some(entries()));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
    }

    #[test]
    fn journal_without_its_end_lists_nothing() {
        let bytes = encode(&entries());
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn journal_that_names_files_elsewhere_lists_nothing() {
        for target in ["../x", "/etc/passwd", "..", "."] {
            let mut entries = entries();
            entries[0].target = target.into();
            assert_eq!(decode(&encode(&entries)), None, "{target}");
        }
        let mut entries = entries();
        entries[0].old = "precious".into();
        assert_eq!(decode(&encode(&entries)), None);
    }
}
