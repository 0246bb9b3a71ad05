//! What can be wrong with a text.

use super::chat::ChatError;
use std::path::PathBuf;
use thiserror::Error;

/// What is wrong with a text.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// File or folder cannot be read.
    #[error("{path}: cannot read the text: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is not UTF-8 text.
    #[error("{path}: not UTF-8 text: {what}")]
    NotText {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        what: String,
    },
    /// Something that no text can be read from.
    #[error("{path}: neither a file, nor a folder, nor a pipe")]
    NoText {
        /// The path.
        path: PathBuf,
    },
    /// A file that would be counted twice.
    #[error("{path} is given twice, as part of {first:?} and of {second:?}; each text counts once")]
    Twice {
        /// The file.
        path: PathBuf,
        /// The corpus that has it already.
        first: String,
        /// The corpus that wants it as well.
        second: String,
    },
    /// A corpus without a single text.
    #[error(
        "the corpus {name:?} holds no text: {path} has no file with UTF-8 text in it (hidden files are passed over)"
    )]
    Empty {
        /// The corpus.
        name: String,
        /// What was given for it.
        path: PathBuf,
    },
    /// A file that became another between its check and its use.
    #[error("{path}: the file changed while it was in use")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file of chats that cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
}
