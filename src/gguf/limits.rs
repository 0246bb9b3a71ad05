//! Fixed parts of the format, and its limits.

/// The first bytes of every GGUF file.
pub const MAGIC: &[u8; 4] = b"GGUF";

/// The metadata key of the alignment.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// The alignment of a file that does not declare one, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// The largest alignment that is accepted, in bytes. llama.cpp has no limit, but pads every tensor to the alignment,
/// so that a damaged value would blow up a file without use.
pub const MAX_ALIGNMENT: u64 = 16 << 20;

/// The longest key, in bytes, as the format's description has it.
pub const MAX_KEY_BYTES: u64 = 65_535;

/// Dimensions that a tensor has at most.
pub const MAX_DIMS: usize = 4;

/// Bytes of a tensor's name at most: ggml stores 64 with the closing NUL.
pub const MAX_NAME_BYTES: usize = 63;

/// llama.cpp's limit for the bytes of a string and the elements of an array.
pub(super) const MAX_LENGTH: u64 = 1 << 30;

/// The largest header that is read, in bytes: everything before the data section is held in memory. The largest
/// vocabularies take a few tens of MiB.
pub const MAX_HEADER_BYTES: u64 = 1 << 30;
