//! What the standard library does not offer of the operating system: copies inside the kernel, reserved space, and
//! files that become visible whole or not at all.
//!
//! [`AtomicFile`] is the only way in which this program writes a file that a person keeps. [`Copier`] moves ranges of
//! bytes between files. With `llama`, this is the only module that holds `unsafe` code.

#[cfg(not(unix))]
compile_error!(
    "moeslice is written for Unix: it needs positioned reads and writes, inodes and names of bytes. On Windows, build it in WSL."
);

mod atomic_file;
#[cfg(feature = "llama")]
mod available;
mod bounded;
mod copy;
mod descriptors;
mod direct;
#[cfg(feature = "llama")]
mod environment;
mod error;
mod file_id;
mod folder;
mod interrupt;
mod journal;
mod left_alone;
mod leftovers;
#[cfg(feature = "llama")]
mod machine;
mod memory;
mod origin;
mod page_cache;
mod part_file;
mod permissions;
mod process;
mod registers;
mod rename;
mod space;
mod staging;

pub use atomic_file::{AtomicFile, check_target, check_targets, commit_all, write_atomic};
#[cfg(feature = "llama")]
pub use available::available_memory;
pub use bounded::read_bounded;
pub use copy::{Copier, CopyError};
pub use descriptors::ensure_descriptors;
pub use direct::{DiskBlock, DiskFile, Way};
#[cfg(feature = "llama")]
pub use environment::{exit_at_once, remove_empty_variables, replace_variable, set_unset_variable};
pub use error::FileError;
pub use file_id::{FileId, FileState};
pub use folder::{folder_of, name_of};
pub use interrupt::{catch_interrupts, interrupts, leave_repeated_interrupts};
pub use left_alone::LeftAlone;
pub use leftovers::{Leftovers, remove_leftovers};
#[cfg(feature = "llama")]
pub use machine::usable_cores;
pub use memory::{forget_peak_memory, peak_memory};
pub use page_cache::{advise_once, advise_soon, begin_writing, drop_pages, write_out};
pub use part_file::PartFile;
pub use process::{ProcessState, ask_to_end, end_with_parent, process_state, signal_name, waits_in};
pub use registers::{Wide, with_wide_registers};
pub use space::{check_room, free_bytes};
