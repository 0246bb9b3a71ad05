use std::path::PathBuf;

use thiserror::Error;

use super::{SAFE_ALIGNMENT, VerifyError};
use crate::gguf::GgufError;
use crate::moe::PrunedError;
use crate::sys::FileError;

/// Why a model was not cut.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SliceError {
    /// The choice of experts or of shards is not possible.
    #[error("{}", within(path, error))]
    Shape {
        /// The model.
        path: PathBuf,
        /// What is wrong.
        error: PrunedError,
    },
    /// The data of the model may begin where llama.cpp does not map them.
    #[error(
        "{}: general.alignment is {alignment}: llama.cpp maps a file only when its data begin at a multiple of \
         {SAFE_ALIGNMENT}, which a cut of it may not do; write the model with that alignment first",
        path.display()
    )]
    Alignment {
        /// The model.
        path: PathBuf,
        /// Its alignment.
        alignment: u64,
    },
    /// The model could not be read.
    #[error(transparent)]
    Model(GgufError),
    /// An output could not be written.
    #[error(transparent)]
    File(FileError),
    /// An output is a file of the model.
    #[error(
        "{} is {}, a file of the model itself: choose another output",
        output.display(), input.display()
    )]
    SameFile {
        /// The output.
        output: PathBuf,
        /// The file of the model.
        input: PathBuf,
    },
    /// The output has no name.
    #[error("{} names no file: give the output a name", output.display())]
    NoName {
        /// The output.
        output: PathBuf,
    },
    /// The output has the name of a shard that it would not be.
    #[error(
        "{} names a shard, and there will be {count} file{}: name the output {}",
        output.display(), if *count == 1 { "" } else { "s" }, name.display()
    )]
    ShardName {
        /// The output.
        output: PathBuf,
        /// Files that there will be.
        count: usize,
        /// A name that fits.
        name: PathBuf,
    },
    /// The model was written to, or another took its name, after it was opened.
    #[error("{}: was changed since it was opened, nothing was written: try again when it is complete", path.display())]
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// A table of expert ids names an expert that does not exist.
    #[error("{}: {tensor} sends token {token} to expert {id} of {n_expert}: the model is damaged", path.display())]
    HashTable {
        /// The file.
        path: PathBuf,
        /// The table.
        tensor: String,
        /// The token.
        token: u64,
        /// The id in the table.
        id: i32,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// What was written does not read back as it should.
    #[error("{}: reads back other than it was written, and did not get its name: the disk may be at fault", path.display())]
    ReadBack {
        /// The file.
        path: PathBuf,
    },
    /// What was written is not a cut of the model.
    #[error("{}: what was written differs from the model, and did not get its name: {error}", path.display())]
    NotTrue {
        /// The file.
        path: PathBuf,
        /// The difference, or why there was no comparison.
        error: Box<VerifyError>,
    },
    /// The finished files are in place, and do not open by their names.
    #[error("{} is written and in place, but does not open: {error}", path.display())]
    InPlace {
        /// The first file.
        path: PathBuf,
        /// Why not.
        error: String,
    },
    /// Stopped by the caller.
    #[error("interrupted, nothing was written")]
    Interrupted,
}

/// Names the model, unless the message does so itself.
fn within(path: &std::path::Path, error: &PrunedError) -> String {
    match error {
        PrunedError::Kept(_) | PrunedError::TooManyShards { .. } | PrunedError::TooManyTensors { .. } => {
            format!("{}: {error}", path.display())
        }
        PrunedError::Ids(_) | PrunedError::Layout(_) => error.to_string(),
    }
}

impl From<GgufError> for SliceError {
    fn from(error: GgufError) -> Self {
        match error {
            GgufError::Changed { path } => Self::SourceChanged { path },
            GgufError::Descriptors { error } => Self::File(error),
            error => Self::Model(error),
        }
    }
}
