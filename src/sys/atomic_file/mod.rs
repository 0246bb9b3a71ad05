//! Files that are there whole or not at all.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::FileError;
use super::folder::folder_of;
use super::leftovers::{Leftovers, remove_leftovers};
use super::rename::{rename_new, sync_file, sync_folder};
use super::staging::{self, Kind};
use super::{journal, permissions, space};

/// Symbolic links that lead from one to the next at most, as in the kernel.
const MAX_LINKS: usize = 40;

/// A file that is being written under a hidden name beside its target.
///
/// Until then it is private. [`commit`](Self::commit) makes it visible: with the permissions of the file that it
/// replaces, or those of the file that it is [`like`](Self::like), or of any new file. Dropped before, it is gone, and the
/// target is as it was.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// use moeslice::sys::AtomicFile;
///
/// let path = folder.path().join("notes.txt");
/// let file = AtomicFile::create(&path, false)?;
/// file.write_all_at(b"whole", 0)?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    hidden: PathBuf,
    target: PathBuf,
    replace: bool,
    like: Option<u32>,
    visible: bool,
}

/// Finds the file that writing to `path` means, and checks that it may be written.
///
/// Symbolic links are followed, so that a link stays one. Checked: the folder exists and takes new files, and there is
/// no file of that name unless `replace`.
pub fn check_target(path: &Path, replace: bool) -> Result<PathBuf, FileError> {
    let mut targets = check_targets(&[path], replace)?;
    Ok(targets.remove(0))
}

/// The same for several files; each folder is tried once.
pub fn check_targets(paths: &[impl AsRef<Path>], replace: bool) -> Result<Vec<PathBuf>, FileError> {
    let mut tried = HashSet::new();
    let mut targets = Vec::with_capacity(paths.len());
    for path in paths {
        let target = check_name(path.as_ref(), replace)?;
        let folder = folder_of(&target);
        if !tried.contains(&folder) {
            // The only sure way to learn whether a folder takes a file is to create one.
            let created =
                staging::create(&target, Kind::Partial).and_then(|(_file, hidden)| fs::remove_file(hidden));
            created.map_err(|error| FileError::Create { folder: folder.clone(), error })?;
            tried.insert(folder);
        }
        targets.push(target);
    }
    Ok(targets)
}

/// As [`check_target`], but for whether the folder takes files.
fn check_name(path: &Path, replace: bool) -> Result<PathBuf, FileError> {
    let target = resolve(path)?;
    let folder = folder_of(&target);
    if !folder.is_dir() {
        return Err(FileError::NoFolder { folder });
    }
    match fs::symlink_metadata(&target) {
        Ok(found) if !found.is_file() => Err(FileError::NotAFile { path: path.to_owned() }),
        Ok(_) if !replace => Err(FileError::Exists { path: path.to_owned() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::Write { path: path.to_owned(), error })
        }
        _ => Ok(target),
    }
}

fn resolve(path: &Path) -> Result<PathBuf, FileError> {
    let mut target = path.to_owned();
    // A name that ends in a slash means a folder; `file_name` would pass over it.
    if target.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(FileError::NotAFile { path: path.to_owned() });
    }
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = folder_of(&target).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(FileError::Write { path: path.to_owned(), error: io::Error::from_raw_os_error(libc::ELOOP) })
}

impl AtomicFile {
    /// Starts a file that will be `target`.
    pub fn create(target: &Path, replace: bool) -> Result<Self, FileError> {
        let target = check_name(target, replace)?;
        let folder = folder_of(&target);
        let (file, hidden) =
            staging::create(&target, Kind::Partial).map_err(|error| FileError::Create { folder, error })?;
        Ok(Self { file, hidden, target, replace, like: None, visible: false })
    }

    /// Lets the file have the permissions of `source`, less what the user wants no new file to have.
    pub fn like(mut self, source: &File) -> Result<Self, FileError> {
        self.like = Some(permissions::of_file(source).map_err(|error| self.write_error(error))?);
        Ok(self)
    }

    /// The open file, readable and writable.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that it will have.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its final length and takes the room for it; what is not written reads as zeros.
    pub fn reserve(&self, bytes: u64) -> Result<(), FileError> {
        // Some file systems fill the disk before they say that it is too small, and other programs with it.
        if let Ok(free) = space::free_bytes(&folder_of(&self.target))
            && bytes > free
        {
            return Err(FileError::NoRoom { path: self.target.clone(), needed: bytes, free });
        }
        space::reserve(&self.file, bytes).map_err(|error| self.explain(error, bytes))
    }

    fn explain(&self, error: io::Error, needed: u64) -> FileError {
        let path = self.target.clone();
        match (error.raw_os_error(), space::file_size_limit()) {
            (Some(libc::EFBIG), Some(limit)) if needed > limit => {
                FileError::SizeLimit { path, needed, limit }
            }
            (Some(libc::EFBIG), _) => FileError::TooLarge { path, needed },
            (Some(libc::ENOSPC), _) => match space::free_bytes(&folder_of(&path)) {
                Ok(free) => FileError::NoRoom { path, needed, free },
                Err(_) => FileError::Write { path, error },
            },
            _ => FileError::Write { path, error },
        }
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), FileError> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.write_error(error))
    }

    /// The error for a write to [`file`](Self::file) that failed.
    pub fn write_error(&self, error: io::Error) -> FileError {
        FileError::Write { path: self.target.clone(), error }
    }

    /// Brings everything to the disk.
    pub fn sync(&self) -> Result<(), FileError> {
        sync_file(&self.file).map_err(|error| self.write_error(error))
    }

    /// Brings everything to the disk, then makes the file visible in one step.
    pub fn commit(mut self) -> Result<(), FileError> {
        self.set_permissions()?;
        self.sync()?;
        let renamed = match self.replace {
            true => fs::rename(&self.hidden, &self.target),
            false => rename_new(&self.hidden, &self.target),
        };
        renamed.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: self.target.clone() },
            _ => FileError::Rename { path: self.target.clone(), error },
        })?;
        self.visible = true;
        sync_folder(&self.target).map_err(|error| FileError::InPlace { path: self.target.clone(), error })
    }

    /// Gives the file, private until now, the permissions that it is to be seen with.
    fn set_permissions(&self) -> Result<(), FileError> {
        let set = match permissions::of_path(&self.target) {
            Some(old) => permissions::replace(&self.file, old),
            None => permissions::fresh(&self.file, self.like),
        };
        match set {
            // A file system without permissions has none to set.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => other.map_err(|error| self.write_error(error)),
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.visible {
            let _ = fs::remove_file(&self.hidden);
        }
    }
}

/// Makes all files visible, or none of them; all must lie in one folder, and the first is the one that readers open.
///
/// As no file system renames several files in one step, a process that is killed in this very moment leaves a journal,
/// by which the next run in that folder puts everything back. Until then the first file is missing.
pub fn commit_all(mut files: Vec<AtomicFile>) -> Result<(), FileError> {
    if files.len() == 1 {
        return files.remove(0).commit();
    }
    let Some(first) = files.first() else { return Ok(()) };
    let folder = folder_of(&first.target);
    let replace = files.iter().all(|file| file.replace);
    if let Some(other) = files.iter().find(|file| folder_of(&file.target) != folder) {
        return Err(FileError::Folders { a: first.target.clone(), b: other.target.clone() });
    }
    for file in &files {
        file.set_permissions()?;
        file.sync()?;
    }
    let ready: Vec<_> = files
        .iter()
        .map(|file| journal::StagedFile { file: &file.file, hidden: &file.hidden, target: &file.target })
        .collect();
    let done = journal::commit(&folder, &ready, replace);
    // What is in place has no hidden name any more, whatever else failed.
    let visible = matches!(done, Ok(()) | Err(FileError::InPlace { .. } | FileError::NotTakenBack { .. }));
    files.iter_mut().for_each(|file| file.visible = visible);
    done
}

/// Writes a small file whole, and removes what killed runs left in its folder. Pipes and devices, such as
/// `/dev/stdout`, are written to directly.
pub fn write_atomic(path: &Path, bytes: &[u8], replace: bool) -> Result<Leftovers, FileError> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        let written = File::options().write(true).open(path).and_then(|mut file| file.write_all(bytes));
        return written
            .map(|()| Leftovers::default())
            .map_err(|error| FileError::Write { path: path.to_owned(), error });
    }
    // A folder that cannot be listed may take files all the same.
    let leftovers = remove_leftovers(&folder_of(&resolve(path)?)).unwrap_or_default();
    let file = AtomicFile::create(path, replace)?;
    file.reserve(bytes.len() as u64)?;
    file.write_all_at(bytes, 0)?;
    file.commit()?;
    Ok(leftovers)
}

#[cfg(test)]
mod tests;
