//! What the standard library does not offer of the operating system: copies inside the kernel, reserved space, and
//! files that become visible whole or not at all.
//!
//! [`WholeFile`] is the only way in which this program writes a file that a person keeps. [`Copier`] moves ranges of
//! bytes between files. With `llama`, this is the only module that holds `unsafe` code.

mod copy;
mod file_id;
mod interrupt;
mod journal;
mod partial;
mod rename;
mod small_file;
mod space;
mod whole_file;

pub use copy::{Copier, CopyError};
pub use file_id::FileId;
pub use interrupt::catch_interrupts;
pub use partial::{Leftovers, remove_leftovers};
pub use small_file::read_small;
pub use space::{ByteCount, advise_once, advise_soon, begin_writing, check_room, free_bytes};
pub use whole_file::{FileError, WholeFile, check_target, commit_all, write_whole};

use std::path::{Path, PathBuf};

/// The folder that holds `path`: `.` for a bare name.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
