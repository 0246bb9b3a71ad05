//! Entries of the tensor table.

use super::limits::{MAX_DIMS, MAX_NAME_BYTES};
use super::types::TensorType;

/// Name, shape, type and place of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name, at most 63 bytes, such as `blk.0.ffn_up_exps.weight`: up to a NUL, where ggml cuts it, with what is not
    /// UTF-8 replaced.
    pub name: String,
    /// The bytes of the name where they are not those of `name`.
    pub(super) raw_name: Option<Box<[u8]>>,
    /// 1 to 4 dimensions, innermost first, as the file lists them: llama.cpp's writer drops trailing ones. A scalar
    /// that a file lists without dimensions has one of size 1.
    pub dims: Vec<u64>,
    /// The element type.
    pub ty: TensorType,
    /// Position of the first byte, counted from the start of the data section.
    pub offset: u64,
}

/// A tensor that no file can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The name does not fit into ggml's 64 bytes.
    #[error("tensor name {start:?}… has {bytes} bytes; ggml takes at most {MAX_NAME_BYTES}")]
    NameTooLong {
        /// How the name begins.
        start: String,
        /// Its length.
        bytes: u64,
    },
    /// No dimension, or more than four.
    #[error("tensor {tensor:?} has {dims} dimensions; 1 to {MAX_DIMS} are possible")]
    DimensionCount {
        /// The tensor.
        tensor: String,
        /// How many it has.
        dims: u64,
    },
    /// A dimension of size 0.
    #[error("dimension {dim} of tensor {tensor:?} is 0; every dimension must be at least 1")]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// The dimension, 0 the innermost.
        dim: usize,
    },
    /// More elements than a signed 64-bit number can count.
    #[error("tensor {tensor:?} of shape {dims:?} has more than 2^63 - 1 elements")]
    TooManyElements {
        /// The tensor.
        tensor: String,
        /// Its shape, innermost first.
        dims: Vec<u64>,
    },
    /// Rows that are no whole number of blocks.
    #[error("tensor {tensor:?} has rows of {row} elements; {ty} needs a multiple of {}", ty.block_elements())]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Elements in a row: the innermost dimension.
        row: u64,
        /// The element type.
        ty: TensorType,
    },
    /// More bytes than a 64-bit number can count.
    #[error("tensor {tensor:?} of type {ty} and shape {dims:?} takes more than 2^64 - 1 bytes")]
    TooManyBytes {
        /// The tensor.
        tensor: String,
        /// Its shape, innermost first.
        dims: Vec<u64>,
        /// The element type.
        ty: TensorType,
    },
}

impl TensorError {
    /// The error for a name of `bytes` bytes that begins with `start`, of which a readable part is kept.
    pub(super) fn too_long(start: &[u8], bytes: u64) -> Self {
        let start = String::from_utf8_lossy(&start[..start.len().min(MAX_NAME_BYTES)]).into_owned();
        Self::NameTooLong { start, bytes }
    }
}

impl TensorInfo {
    /// A tensor at offset 0; `dims` innermost first.
    pub fn new(name: impl Into<String>, dims: Vec<u64>, ty: TensorType) -> Result<Self, TensorError> {
        let info = Self { name: name.into(), raw_name: None, dims, ty, offset: 0 };
        info.check()?;
        Ok(info)
    }

    /// Checks name, shape and size: after it, [`elements`](Self::elements) and [`bytes`](Self::bytes) are exact.
    pub fn check(&self) -> Result<(), TensorError> {
        check_name(self.raw_name())?;
        let tensor = || self.name.clone();
        if self.dims.is_empty() || self.dims.len() > MAX_DIMS {
            return Err(TensorError::DimensionCount { tensor: tensor(), dims: self.dims.len() as u64 });
        }
        if let Some(dim) = self.dims.iter().position(|&n| n == 0) {
            return Err(TensorError::ZeroDimension { tensor: tensor(), dim });
        }
        let elements = self.dims.iter().try_fold(1_u64, |product, &n| product.checked_mul(n));
        let Some(elements) = elements.filter(|&n| i64::try_from(n).is_ok()) else {
            return Err(TensorError::TooManyElements { tensor: tensor(), dims: self.dims.clone() });
        };
        if !self.dims[0].is_multiple_of(self.ty.block_elements()) {
            return Err(TensorError::PartialBlock { tensor: tensor(), row: self.dims[0], ty: self.ty });
        }
        if self.ty.row_bytes(elements).is_none() {
            return Err(TensorError::TooManyBytes { tensor: tensor(), dims: self.dims.clone(), ty: self.ty });
        }
        Ok(())
    }

    /// The bytes of the name, as a file stores them.
    pub fn raw_name(&self) -> &[u8] {
        self.raw_name.as_deref().unwrap_or(self.name.as_bytes())
    }

    /// Number of elements. A shape that [`check`](Self::check) refuses gives some number, never a panic.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |product, &n| product.saturating_mul(n))
    }

    /// Bytes of the data, without padding. A shape that [`check`](Self::check) refuses gives some number, never a panic.
    pub fn bytes(&self) -> u64 {
        (self.elements() / self.ty.block_elements()).saturating_mul(self.ty.block_bytes())
    }

    /// The outermost listed dimension: the number of experts in a tensor of experts.
    pub fn outermost(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }
}

/// Checks what ggml demands of a name.
pub(super) fn check_name(name: &[u8]) -> Result<(), TensorError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(TensorError::too_long(name, name.len() as u64));
    }
    Ok(())
}
