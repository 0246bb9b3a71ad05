//! What can be wrong with a model file.

use std::io;
use std::path::{Path, PathBuf};

use super::tensor::TensorError;
use super::types::TypeError;
use super::value::ValueType;

/// Why a model could not be opened, read or laid out.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be opened.
    #[error("{}: cannot open: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The system could not read a part of the file.
    #[error("{}: cannot read {what}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The part of the header, or the tensor.
        what: String,
        /// What the system said.
        source: io::Error,
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
    #[error("cannot write the GGUF file: {source}")]
    Write {
        /// What the system said.
        source: io::Error,
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

/// What is wrong with the bytes of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformation {
    /// No byte at all.
    #[error("the file is empty; download or copy it again")]
    Empty,
    /// An HTML page.
    #[error("this is an HTML page, not a model; the download saved a web page: fetch the file itself")]
    HtmlPage,
    /// A Git LFS pointer.
    #[error("this is a Git LFS pointer, not the model that it stands for; run `git lfs pull`")]
    LfsPointer,
    /// Zero bytes where the magic should be.
    #[error("the file begins with zero bytes; it was reserved on disk but its download never finished")]
    ZeroFilled,
    /// A known format that is not GGUF.
    #[error("this is {format}, not a GGUF file")]
    OtherFormat {
        /// The format, with its article.
        format: &'static str,
    },
    /// Something unknown.
    #[error("the file begins with \"{}\" instead of \"GGUF\"; it is not a GGUF file", magic.escape_ascii())]
    WrongMagic {
        /// The first bytes, at most four.
        magic: Vec<u8>,
    },
    /// Version in the other byte order.
    #[error(
        "the file is big-endian; only little-endian GGUF files can be read: convert it again for this machine"
    )]
    BigEndian,
    /// The first version, which llama.cpp no longer reads.
    #[error("GGUF version 1 is no longer supported; convert the model again")]
    VersionOne,
    /// A version that does not exist (yet).
    #[error("GGUF version {version} is unknown; versions 2 and 3 can be read")]
    UnknownVersion {
        /// The version in the file.
        version: u32,
    },
    /// More tensors than the rest of the file could describe.
    #[error(
        "the header declares {declared} tensors; the {remaining} bytes after it cannot describe that many"
    )]
    TensorCount {
        /// The number in the header.
        declared: u64,
        /// Bytes that follow.
        remaining: u64,
    },
    /// More metadata entries than the rest of the file could hold.
    #[error(
        "the header declares {declared} metadata entries; the {remaining} bytes after it cannot hold that many"
    )]
    EntryCount {
        /// The number in the header.
        declared: u64,
        /// Bytes that follow.
        remaining: u64,
    },
    /// The file ends within the header.
    #[error("the file ends at byte {len}, inside {what}; it is truncated: download or copy it again")]
    HeaderTruncated {
        /// The part that was being read.
        what: String,
        /// Size of the file.
        len: u64,
    },
    /// A key of length 0.
    #[error("the key of metadata entry {index} is empty")]
    EmptyKey {
        /// Position of the entry, from 0.
        index: u64,
    },
    /// A key that is longer than the format allows.
    #[error(
        "the key of metadata entry {index} has {bytes} bytes; at most {} are allowed",
        super::header::MAX_KEY_BYTES
    )]
    KeyTooLong {
        /// Position of the entry, from 0.
        index: u64,
        /// The length in the file.
        bytes: u64,
    },
    /// llama.cpp would compare such a key only up to the NUL.
    #[error("metadata key {key:?} holds a NUL character")]
    KeyWithNul {
        /// The key.
        key: String,
    },
    /// Two entries of one key.
    #[error("metadata key {key:?} occurs twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Bytes that are no text.
    #[error("{what} is not UTF-8")]
    NotUtf8 {
        /// The key, value or name.
        what: String,
    },
    /// A value type that GGUF does not have.
    #[error("metadata key {key:?} has the unknown value type {id}")]
    UnknownValueType {
        /// The key.
        key: String,
        /// The type in the file.
        id: u32,
    },
    /// An array of arrays.
    #[error("metadata key {key:?} is an array of arrays, which llama.cpp does not read")]
    NestedArray {
        /// The key.
        key: String,
    },
    /// An array with more elements than llama.cpp reads, or than the rest of the file could hold.
    #[error(
        "metadata key {key:?} declares an array of {declared} elements; the file has {remaining} bytes left and llama.cpp reads at most 2^30"
    )]
    ArrayLength {
        /// The key.
        key: String,
        /// The length in the file.
        declared: u64,
        /// Bytes that follow.
        remaining: u64,
    },
    /// A string that is longer than llama.cpp reads, or than the rest of the file.
    #[error(
        "{what} declares {declared} bytes of text; the file has {remaining} bytes left and llama.cpp reads at most 2^30"
    )]
    StringLength {
        /// The key, value or name.
        what: String,
        /// The length in the file.
        declared: u64,
        /// Bytes that follow.
        remaining: u64,
    },
    /// A bool that is neither 0 nor 1.
    #[error("metadata key {key:?} holds a bool of value {byte}; only 0 and 1 are bools")]
    InvalidBool {
        /// The key.
        key: String,
        /// The byte in the file.
        byte: u8,
    },
    /// An alignment of another value type than u32.
    #[error("`general.alignment` is of type {found}; it must be u32")]
    AlignmentType {
        /// The type in the file.
        found: ValueType,
    },
    /// An alignment that is no power of two, or is absurdly large.
    #[error(
        "`general.alignment` is {alignment}; it must be a power of two of at most {}",
        super::header::MAX_ALIGNMENT
    )]
    Alignment {
        /// The value in the file.
        alignment: u64,
    },
    /// A layout with another alignment than its metadata declare.
    #[error("the layout was asked for alignment {asked}, but readers of these metadata will use {declared}")]
    AlignmentMismatch {
        /// What the layout was asked for.
        asked: u64,
        /// What the metadata say, or the default.
        declared: u64,
    },
    /// Name, shape or size of a tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An element type that cannot be used.
    #[error("tensor {tensor:?}: {source}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// What is wrong with the type.
        source: TypeError,
    },
    /// Two tensors of one name.
    #[error("tensor {tensor:?} occurs twice")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },
    /// An offset that is no multiple of the alignment.
    #[error("tensor {tensor:?} has offset {offset}, which is no multiple of the alignment {alignment}")]
    OffsetUnaligned {
        /// The tensor.
        tensor: String,
        /// The offset in the file.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// An offset before the end of the tensor before it: tensors overlap or are out of order.
    #[error("tensor {tensor:?} has offset {offset}, inside the tensors before it; expected {expected}")]
    OffsetOverlap {
        /// The tensor.
        tensor: String,
        /// The offset in the file.
        offset: u64,
        /// The padded end of the tensor before it.
        expected: u64,
    },
    /// An offset that leaves a hole after the tensor before it.
    #[error("tensor {tensor:?} has offset {offset}, which leaves a hole before it; expected {expected}")]
    OffsetGap {
        /// The tensor.
        tensor: String,
        /// The offset in the file.
        offset: u64,
        /// The padded end of the tensor before it.
        expected: u64,
    },
    /// The sizes of all tensors add up to more than a 64-bit file can hold.
    #[error("the data up to tensor {tensor:?} take more than 2^63 - 1 bytes")]
    DataOverflow {
        /// The tensor at which the sum overflows.
        tensor: String,
    },
    /// The file ends before the end of a tensor.
    #[error(
        "truncated: the file has {len} bytes, but tensor {tensor:?} ends at byte {end}; download or copy it again"
    )]
    DataTruncated {
        /// The first tensor that is not there in full.
        tensor: String,
        /// Where it should end.
        end: u64,
        /// Size of the file.
        len: u64,
    },
    /// Another GGUF file begins after the last tensor.
    #[error(
        "another GGUF file begins at byte {position}: shards were joined end to end; keep the shards apart and give the first, or join them with `llama-gguf-split --merge`"
    )]
    JoinedShards {
        /// Where it begins.
        position: u64,
    },
}

/// What is wrong with the shards of a split model.
#[derive(Debug, thiserror::Error)]
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
    #[error("shard {} of {count} by its metadata, but its name does not end in `{}`; give it its name back", index + 1, super::shards::suffix(*index, *count))]
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
