//! The element types of ggml: how many elements a block holds and how many bytes it takes.

use std::fmt;

/// An element type of a tensor, as numbered by ggml.
///
/// A type stores rows (the innermost dimension) as whole blocks of [`block_elements`](Self::block_elements) elements
/// in [`block_bytes`](Self::block_bytes) bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType(Kind);

/// A type id that names no type which a file may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// ggml once had this type and has dropped it.
    #[error("element type {id} ({name}) was dropped from ggml; convert or quantise the model again")]
    Retired {
        /// The id in the file.
        id: u32,
        /// The name that the type had.
        name: &'static str,
    },
    /// No type ever had this id, or it is newer than this program.
    #[error("element type {id} is unknown; the file is damaged or newer than this program")]
    Unknown {
        /// The id in the file.
        id: u32,
    },
}

macro_rules! tensor_types {
    ($($name:ident = $id:literal: $elements:literal elements in $bytes:literal bytes;)*) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        enum Kind { $($name,)* }

        impl TensorType {
            $(
                #[doc = concat!("`", stringify!($name), "`: ", $elements, " elements in ", $bytes, " bytes.")]
                pub const $name: Self = Self(Kind::$name);
            )*

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The id that files store.
            pub const fn id(self) -> u32 {
                match self.0 { $(Kind::$name => $id,)* }
            }

            /// The name in capital letters, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self.0 { $(Kind::$name => stringify!($name),)* }
            }

            /// Elements in one block; a row is a multiple of it.
            pub const fn block_elements(self) -> u64 {
                match self.0 { $(Kind::$name => $elements,)* }
            }

            /// Bytes that one block takes.
            pub const fn block_bytes(self) -> u64 {
                match self.0 { $(Kind::$name => $bytes,)* }
            }

            const fn known(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$name),)* _ => None }
            }
        }
    };
}

tensor_types! {
    F32 = 0: 1 elements in 4 bytes;
    F16 = 1: 1 elements in 2 bytes;
    Q4_0 = 2: 32 elements in 18 bytes;
    Q4_1 = 3: 32 elements in 20 bytes;
    Q5_0 = 6: 32 elements in 22 bytes;
    Q5_1 = 7: 32 elements in 24 bytes;
    Q8_0 = 8: 32 elements in 34 bytes;
    Q8_1 = 9: 32 elements in 36 bytes;
    Q2_K = 10: 256 elements in 84 bytes;
    Q3_K = 11: 256 elements in 110 bytes;
    Q4_K = 12: 256 elements in 144 bytes;
    Q5_K = 13: 256 elements in 176 bytes;
    Q6_K = 14: 256 elements in 210 bytes;
    Q8_K = 15: 256 elements in 292 bytes;
    IQ2_XXS = 16: 256 elements in 66 bytes;
    IQ2_XS = 17: 256 elements in 74 bytes;
    IQ3_XXS = 18: 256 elements in 98 bytes;
    IQ1_S = 19: 256 elements in 50 bytes;
    IQ4_NL = 20: 32 elements in 18 bytes;
    IQ3_S = 21: 256 elements in 110 bytes;
    IQ2_S = 22: 256 elements in 82 bytes;
    IQ4_XS = 23: 256 elements in 136 bytes;
    I8 = 24: 1 elements in 1 bytes;
    I16 = 25: 1 elements in 2 bytes;
    I32 = 26: 1 elements in 4 bytes;
    I64 = 27: 1 elements in 8 bytes;
    F64 = 28: 1 elements in 8 bytes;
    IQ1_M = 29: 256 elements in 56 bytes;
    BF16 = 30: 1 elements in 2 bytes;
    TQ1_0 = 34: 256 elements in 54 bytes;
    TQ2_0 = 35: 256 elements in 66 bytes;
    MXFP4 = 39: 32 elements in 17 bytes;
    NVFP4 = 40: 64 elements in 36 bytes;
    Q1_0 = 41: 128 elements in 18 bytes;
    Q2_0 = 42: 64 elements in 18 bytes;
    F8_E4M3 = 43: 1 elements in 1 bytes;
}

impl TensorType {
    /// The type with this id.
    pub fn from_id(id: u32) -> Result<Self, TypeError> {
        let retired = |name| Err(TypeError::Retired { id, name });
        match id {
            4 => retired("Q4_2"),
            5 => retired("Q4_3"),
            31 => retired("Q4_0_4_4"),
            32 => retired("Q4_0_4_8"),
            33 => retired("Q4_0_8_8"),
            36 => retired("IQ4_NL_4_4"),
            37 => retired("IQ4_NL_4_8"),
            38 => retired("IQ4_NL_8_8"),
            _ => Self::known(id).ok_or(TypeError::Unknown { id }),
        }
    }

    /// Bytes of a row of `elements`; `None` when that is not a whole number of blocks, or overflows.
    pub fn row_bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// All types in order of their ids.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
