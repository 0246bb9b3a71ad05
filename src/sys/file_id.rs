//! Whether two names mean the same file, and whether a file is still what it was.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode: equal for two names of one file, whether by path, hard link, symbolic link or bind mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of the file that `path` leads to; `None` when there is none.
    pub fn of_path(path: &Path) -> io::Result<Option<Self>> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of_metadata(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The identity of an open file.
    pub fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of_metadata(&file.metadata()?))
    }

    /// The identity of the file that `metadata` was taken from.
    pub fn of_metadata(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What a file was when it was looked at: which file, how long, and when it was last written to or changed otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    id: FileId,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// The state of an open file.
    pub fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of_metadata(&file.metadata()?))
    }

    /// The state of the file that `path` leads to.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        Ok(Self::of_metadata(&std::fs::metadata(path)?))
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        Self {
            id: FileId::of_metadata(metadata),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
