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
use super::left_alone::LeftAlone;
use super::rename::{rename_new, sync_file, sync_folder};
use super::staging::{self, Kind};

/// The first and last bytes of a whole journal.
const BEGIN: &[u8] = b"moeslice commit 2";
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

/// No device: its number may be another one after a reboot, or on another mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
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
    let done = written
        .map_err(failed)
        .and_then(|()| move_all(folder, files, &entries, replace))
        .and_then(|()| end(&journal, &journal_path).map_err(failed));
    if let Err(error) = done {
        // What cannot be put back keeps its journal, for the next run to try again.
        return Err(match put_back(folder, &entries).into_iter().next() {
            Some(left) => FileError::NotTakenBack { error: Box::new(error), path: left.path, why: left.why },
            None => {
                let _ = fs::remove_file(&journal_path);
                error
            }
        });
    }
    #[cfg(test)]
    super::rename::crash::point();
    for entry in &entries {
        // Left behind, it would go with the next run's leftovers.
        let _ = fs::remove_file(folder.join(&entry.old));
    }
    sync_folder(&journal_path).map_err(|error| FileError::InPlace { path: first.target.to_owned(), error })
}

/// Takes the journal away: from here on the new files are the valid ones.
fn end(journal: &File, path: &Path) -> io::Result<()> {
    #[cfg(test)]
    super::rename::crash::point();
    match fs::remove_file(path) {
        // Without its end, a journal lists nothing.
        Err(_) => journal.set_len(0).and_then(|()| sync_file(journal)),
        Ok(()) => sync_folder(path).or(Ok(())),
    }
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

/// Puts back what the journal of a dead run lists; what could not be put back is told.
pub(super) fn roll_back(mut journal: &File, folder: &Path) -> io::Result<Vec<LeftAlone>> {
    let mut bytes = Vec::new();
    journal.seek(SeekFrom::Start(0))?;
    journal.take(MAX_BYTES).read_to_end(&mut bytes)?;
    // Nothing is renamed before the journal is whole.
    Ok(decode(&bytes).map_or_else(Vec::new, |entries| put_back(folder, &entries)))
}

/// Removes new files that are in place, then moves old files back into theirs. Tells what could not be done; one file
/// does not stop the others.
fn put_back(folder: &Path, entries: &[Entry]) -> Vec<LeftAlone> {
    let mut left = Vec::new();
    let mut tell = |name: &OsStr, why: String| left.push(LeftAlone { path: folder.join(name), why });
    for entry in entries {
        let target = folder.join(&entry.target);
        let removed = match target.symlink_metadata() {
            Ok(found) if Fingerprint::of(&found) == entry.new => fs::remove_file(&target),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        if let Err(error) = removed {
            tell(&entry.target, format!("cannot be removed: {error}"));
        }
    }
    // The first file last here too: with it the group is readable again.
    for entry in entries.iter().rev() {
        if let Err(why) = restore(&folder.join(&entry.old), &folder.join(&entry.target)) {
            tell(&entry.old, why);
        }
    }
    if let Err(error) = sync_folder(&folder.join(".")) {
        tell(OsStr::new(""), format!("cannot be synced: {error}"));
    }
    left
}

/// Moves an old file back into its place.
fn restore(old: &Path, target: &Path) -> Result<(), String> {
    let found = |path: &Path| match path.symlink_metadata() {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot be looked at: {error}")),
    };
    let Some(old_file) = found(old)? else { return Ok(()) };
    let done = match found(target)? {
        None => rename_new(old, target),
        // Killed between giving the old file its second name and taking the first: it has both.
        Some(there) if (there.dev(), there.ino()) == (old_file.dev(), old_file.ino()) => fs::remove_file(old),
        Some(_) => {
            let name = target.file_name().unwrap_or_default().to_string_lossy();
            return Err(format!(
                "is what {name} was before; another file has that name now: move one of them away"
            ));
        }
    };
    done.map_err(|error| format!("cannot be moved back: {error}"))
}

fn write(journal: &mut File, entries: &[Entry]) -> io::Result<()> {
    journal.write_all(&encode(entries))?;
    sync_file(journal)
}

/// Fields end with NUL, which no file name holds.
fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = BEGIN.to_vec();
    for Entry { new, old, target } in entries {
        let Fingerprint { inode, bytes: size, modified: (seconds, nanoseconds) } = new;
        bytes.extend(format!("\0{inode} {size} {seconds} {nanoseconds}\0").as_bytes());
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
mod tests;
