//! The GGUF file format, in safe Rust.
//!
//! [`Model`] opens a file, or all shards of a split model, checks every header against llama.cpp's own rules and reads
//! tensor data at any position. [`Layout`] says where everything of an output file lies. A header that is read and laid
//! out again without a change gives the same bytes.
//!
//! No input makes this module panic, and none makes it allocate more than a small multiple of the bytes that a header
//! really has. Files are read with positioned reads and never mapped, so that one which shrinks in use gives an error.

mod cursor;
mod error;
mod foreign_format;
mod header;
mod limits;
mod malformation;
mod metadata;
mod model;
mod owned_value;
mod shard_name;
mod source;
mod split;
mod tensor;
mod text;
mod types;
mod value;
mod writer;

pub use error::{GgufError, ShardFault};
pub use header::Header;
pub use limits::{ALIGNMENT_KEY, MAGIC};
pub use malformation::Malformation;
pub use metadata::Metadata;
pub use model::{Model, Shard, Tensor};
pub use owned_value::OwnedValue;
pub use shard_name::{parse_shard_name, shard_path};
pub use source::ReadAt;
pub use split::{SPLIT_COUNT_KEY, SPLIT_NO_KEY, SPLIT_TENSORS_KEY};
pub use tensor::{TensorError, TensorInfo};
pub use types::{TensorType, TypeError};
pub use value::{Array, ArrayIter, Value, ValueType};
pub use writer::{CURRENT_VERSION, Layout, declared_alignment, write_model};

#[cfg(test)]
mod tests;
