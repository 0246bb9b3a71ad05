//! What is wrong with a trace.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a trace was not read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: cannot read the trace: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file became shorter while it was read.
    #[error("{}: the file became shorter while it was read", path.display())]
    Shrank {
        /// The file.
        path: PathBuf,
    },
    /// The file is of none of the three forms.
    #[error("{}: not a trace: {what}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// What the trace says of itself is not possible.
    #[error("{}: the trace's header is not usable: {what}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// An Arrow message that cannot be read.
    #[error("{}: message {message} of the stream is malformed: {what}", path.display())]
    Message {
        /// The file.
        path: PathBuf,
        /// Number of the message, from 0, the schema.
        message: u64,
        /// What is wrong.
        what: String,
    },
    /// A token that cannot be.
    #[error("{}: token {row}: {what}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Number of the token, from 0.
        row: u64,
        /// What is wrong.
        what: String,
    },
    /// A line that cannot be read.
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The model's layers are not those of the trace.
    #[error("{}: layer {layer} of the trace is not as in this model", file.display())]
    OtherModel {
        /// The model.
        file: PathBuf,
        /// The first layer that differs.
        layer: u32,
    },
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] crate::sys::FileError),
}
