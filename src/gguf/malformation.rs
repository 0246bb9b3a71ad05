//! What can be wrong with the bytes of a GGUF file.

use super::limits::{MAX_ALIGNMENT, MAX_HEADER_BYTES, MAX_KEY_BYTES};
use super::tensor::TensorError;
use super::types::TypeError;
use super::value::ValueType;

/// What is wrong with the bytes of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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
        "the header declares {declared} tensors; the {remaining} bytes after it cannot describe that many: the file is damaged or truncated"
    )]
    TensorCount {
        /// The number in the header.
        declared: u64,
        /// Bytes that follow.
        remaining: u64,
    },
    /// More metadata entries than the rest of the file could hold.
    #[error(
        "the header declares {declared} metadata entries; the {remaining} bytes after it cannot hold that many: the file is damaged or truncated"
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
    /// A header of absurd size.
    #[error("the header goes on beyond {MAX_HEADER_BYTES} bytes at {what}; no model needs that much")]
    HeaderTooLarge {
        /// The part that was to be read.
        what: String,
    },
    /// A key of length 0.
    #[error("the key of metadata entry {index} is empty")]
    EmptyKey {
        /// Position of the entry, from 0.
        index: u64,
    },
    /// A key that is longer than the format allows.
    #[error("the key of metadata entry {index} has {bytes} bytes; at most {} are allowed", MAX_KEY_BYTES)]
    KeyTooLong {
        /// Position of the entry, from 0.
        index: u64,
        /// The length in the file.
        bytes: u64,
    },
    /// Two entries of one key.
    #[error("metadata key {key:?} occurs twice")]
    DuplicateKey {
        /// The key.
        key: String,
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
        "metadata key {key:?} declares an array of {declared} elements; the file has {remaining} bytes left and llama.cpp reads at most 2^30: the file is damaged or truncated"
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
        "{what} declares {declared} bytes of text; the file has {remaining} bytes left and llama.cpp reads at most 2^30: the file is damaged or truncated"
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
    #[error("`general.alignment` is {alignment}; it must be a power of two of at most {}", MAX_ALIGNMENT)]
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
    #[error("tensor {tensor:?}: {fault}")]
    TensorType {
        /// The tensor.
        tensor: String,
        /// What is wrong with the type.
        fault: TypeError,
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
        "another GGUF file begins at byte {position}: shards were joined end to end; keep the shards apart and give the first, or join them with llama-gguf-split"
    )]
    JoinedShards {
        /// Where it begins.
        position: u64,
    },
}
