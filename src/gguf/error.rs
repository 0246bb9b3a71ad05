//! Why a model cannot be opened, read or written.

use std::io;
use std::path::{Path, PathBuf};

use super::malformation::Malformation;
use super::value::ValueType;
use crate::sys::FileError;

/// Why a model could not be opened, read or laid out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be opened.
    #[error("{}: cannot open: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The system could not read a part of the file.
    #[error("{}: cannot read {what}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The part of the header, or the tensor.
        what: String,
        /// What the system said.
        error: io::Error,
    },
    /// The file got shorter after it was opened.
    #[error(
        "{}: ends inside tensor {tensor:?} at byte {position}: the file was cut while in use",
        path.display()
    )]
    FileShrank {
        /// The file.
        path: PathBuf,
        /// The tensor that was read.
        tensor: String,
        /// Where in the file the data ended.
        position: u64,
    },
    /// The file was written to, or another took its name, after it was opened.
    #[error("{}: was changed while it was in use: try again when it is complete", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The model has more shards than the process may have files open.
    #[error(transparent)]
    Descriptors {
        /// The limit.
        error: FileError,
    },
    /// A read beyond the end of a tensor was asked for.
    #[error("tensor {tensor:?} has {bytes} bytes; {len} at {offset} lie outside")]
    OutsideTensor {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: u64,
        /// Where the read was to start.
        offset: u64,
        /// How much was to be read.
        len: u64,
    },
    /// The file's content is not a GGUF file that llama.cpp would load.
    #[error("{}: {fault}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: Malformation,
    },
    /// The shards of a split model do not belong together.
    #[error("{}: {fault}", path.display())]
    Shards {
        /// The shard at fault.
        path: PathBuf,
        /// What is wrong.
        fault: ShardFault,
    },
    /// The metadata do not name the architecture.
    #[error("{}: the metadata have no string `general.architecture`, so this is no model", path.display())]
    NoArchitecture {
        /// The file.
        path: PathBuf,
    },
    /// Metadata or tensors that cannot be written.
    #[error("cannot write a GGUF file: {fault}")]
    Layout {
        /// What is wrong.
        fault: Malformation,
    },
    /// Data of another size than the tensor's shape and type say.
    #[error("cannot write tensor {tensor:?}: its shape and type take {expected} bytes, {found} were given")]
    DataSize {
        /// The tensor.
        tensor: String,
        /// Bytes by shape and type.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The system could not write.
    #[error("cannot write the GGUF file: {error}")]
    Write {
        /// What the system said.
        error: io::Error,
    },
}

impl GgufError {
    /// The malformation, if that is what the error is about.
    pub fn malformation(&self) -> Option<&Malformation> {
        match self {
            Self::Malformed { fault, .. } | Self::Layout { fault } => Some(fault),
            _ => None,
        }
    }

    pub(super) fn malformed(path: &Path, fault: impl Into<Malformation>) -> Self {
        Self::Malformed { path: path.to_owned(), fault: fault.into() }
    }
}

/// What is wrong with the shards of a split model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardFault {
    /// A key of the wrong type.
    #[error("`{key}` is of type {found}; it must be {expected}")]
    KeyType {
        /// The key.
        key: &'static str,
        /// The type in the file.
        found: ValueType,
        /// The type that llama.cpp reads.
        expected: ValueType,
    },
    /// A key that every shard needs.
    #[error("a shard without `{key}`")]
    KeyMissing {
        /// The key.
        key: &'static str,
    },
    /// `split.no` beyond `split.count`.
    #[error("`split.no` is {index}, but `split.count` is {count}")]
    IndexRange {
        /// The 0-based index in the file.
        index: u16,
        /// The number of shards in the file.
        count: u16,
    },
    /// The name is not the one that llama.cpp looks for.
    #[error("shard {} of {count} by its metadata, but its name does not end in `{}`; give it its name back", index + 1, super::shard_name::suffix(*index, *count))]
    Renamed {
        /// The 0-based index in the metadata.
        index: u16,
        /// The number of shards in the metadata.
        count: u16,
    },
    /// A shard that is not there.
    #[error("shard {} of {count} is missing; put all shards into one folder", index + 1)]
    Missing {
        /// The 0-based index that was looked for.
        index: u16,
        /// The number of shards.
        count: u16,
    },
    /// A shard that says it is another one.
    #[error("shard {} by its name, but {} by its `split.no`", expected + 1, u32::from(*found) + 1)]
    Index {
        /// The 0-based index by the name.
        expected: u16,
        /// The 0-based index in the file.
        found: u16,
    },
    /// A shard of a model with another number of shards, tensors, or another architecture.
    #[error("a shard of another model: its `{key}` is {found}, but that of the first shard is {expected}")]
    Foreign {
        /// The key that differs.
        key: &'static str,
        /// The value in the first shard.
        expected: String,
        /// The value in this shard.
        found: String,
    },
    /// A tensor that an earlier shard holds, too.
    #[error("tensor {tensor:?} is also in {}", other.display())]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// The earlier shard.
        other: PathBuf,
    },
    /// The shards together hold another number of tensors than they say.
    #[error("`split.tensors.count` is {declared}, but the shards hold {found} tensors")]
    TensorCount {
        /// The number in the first shard.
        declared: i64,
        /// The number found.
        found: u64,
    },
}
