//! A comparison that follows the writer: what has reached the disk is read back while the rest is still written.
//!
//! The writer tells a [`Frontier`] how far it has come. The reader waits for a finished stretch to be on the disk, and
//! takes its bytes from there and not from what the page cache holds of them since they were written.

mod frontier;
mod reader;

pub(super) use frontier::{Frontier, ReaderProgress, STRETCH};
pub(super) use reader::{NotRead, Reader, follow};
