//! Why a file was not written.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::units::WithBytes;

/// Why a file was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is a file of that name, and it is not to be replaced.
    #[error("{} exists already: choose another name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A folder or a device where a file is to be written.
    #[error("{} is not a regular file: choose another name", path.display())]
    NotAFile {
        /// What is there.
        path: PathBuf,
    },
    /// The folder for the file does not exist.
    #[error("the folder {} does not exist: create it, or choose another one", folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder takes no new file.
    #[error("cannot create a file in the folder {}: {error}", folder.display())]
    Create {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Less room than the file needs.
    #[error(
        "no room for {}: it takes {} and its disk has {} free",
        path.display(), WithBytes(*needed), WithBytes(*free)
    )]
    NoRoom {
        /// The file, or the first of the files.
        path: PathBuf,
        /// Bytes that it takes, or they.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// A limit on the size of files stands below what the file needs.
    #[error(
        "{} takes {}, and this process may write files of at most {}: raise `ulimit -f`",
        path.display(), WithBytes(*needed), WithBytes(*limit)
    )]
    SizeLimit {
        /// The file.
        path: PathBuf,
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// The file system takes no file of that size, such as FAT with its 4 GiB.
    #[error("{} takes {}, and the file system of its folder takes no file of that size", path.display(), WithBytes(*needed))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that it takes.
        needed: u64,
    },
    /// More files at once than the process may have open.
    #[error(
        "{needed} files have to be open at once, and this process may open {limit}: raise `ulimit -Hn`, or use fewer shards"
    )]
    Descriptors {
        /// Files, those that are open now included.
        needed: u64,
        /// Files that are allowed.
        limit: u64,
    },
    /// Writing failed.
    #[error("writing {} failed: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The finished file could not be given its name.
    #[error("giving {} its name failed: {error}", path.display())]
    Rename {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The finished file has its name, which a power cut may still undo.
    #[error("{} is whole and in place, but its folder could not be synced: {error}", path.display())]
    InPlace {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Files could not become visible together, and not all could be put back as they were.
    #[error("{error}; and {} {why}", path.display())]
    NotTakenBack {
        /// Why the files did not become visible.
        error: Box<FileError>,
        /// The file that is not as it was.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Files that are to become visible together lie in several folders.
    #[error("{} and {} lie in different folders and cannot become visible together", a.display(), b.display())]
    Folders {
        /// One file.
        a: PathBuf,
        /// Another one.
        b: PathBuf,
    },
}
