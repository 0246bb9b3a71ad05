//! Files that are readable while they grow: `NAME.part` until they are whole.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::atomic_file::check_target;
use super::error::FileError;
use super::rename::{rename_new, sync_folder};

/// A file that is written as `NAME.part` and renamed once it is whole. What a killed process leaves is that `.part`,
/// for a reader that can do with a part; a failure leaves it as well.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    part: PathBuf,
    target: PathBuf,
    replace: bool,
}

impl PartFile {
    /// The name of the file that is to become `target`, while it is written.
    pub fn part_of(target: &Path) -> PathBuf {
        let mut name: OsString = target.as_os_str().to_owned();
        name.push(".part");
        PathBuf::from(name)
    }

    /// Starts a file that will be `target`. Neither it nor its `.part` may be there, unless `replace`.
    ///
    /// # Errors
    /// When there is such a file, or the folder takes none.
    pub fn create(target: &Path, replace: bool) -> Result<Self, FileError> {
        let target = check_target(target, replace)?;
        let part = PartFile::part_of(&target);
        let mut options = File::options();
        options.read(true).write(true);
        match replace {
            true => options.create(true).truncate(true),
            false => options.create_new(true),
        };
        let file = options.open(&part).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: part.clone() },
            _ => FileError::Write { path: part.clone(), error },
        })?;
        Ok(PartFile { file, part, target, replace })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that it has until it is whole.
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// The error for a write to [`file`](Self::file) that failed.
    pub fn write_error(&self, error: io::Error) -> FileError {
        FileError::Write { path: self.part.clone(), error }
    }

    /// Brings everything to the disk, then gives the file its name.
    ///
    /// # Errors
    /// When the disk does not take it, or the name is taken by now.
    pub fn commit(self) -> Result<PathBuf, FileError> {
        self.file.sync_all().map_err(|error| self.write_error(error))?;
        let renamed = match self.replace {
            true => fs::rename(&self.part, &self.target),
            false => rename_new(&self.part, &self.target),
        };
        renamed.and_then(|()| sync_folder(&self.target)).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => FileError::Exists { path: self.target.clone() },
            _ => FileError::Rename { path: self.target.clone(), error },
        })?;
        Ok(self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn part_file_committed_has_its_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t.arrow");
        let part = PartFile::create(&target, false).unwrap();
        part.file().write_all(b"abc").unwrap();
        assert!(part.part().exists() && !target.exists());
        part.commit().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"abc");
        assert!(!PartFile::part_of(&target).exists());
    }

    #[test]
    fn part_file_left_by_a_kill_is_not_replaced_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t.arrow");
        fs::write(PartFile::part_of(&target), b"precious").unwrap();
        let refused = PartFile::create(&target, false);
        assert!(matches!(refused, Err(FileError::Exists { path }) if path == PartFile::part_of(&target)));
        assert!(PartFile::create(&target, true).is_ok());
    }
}
