//! Values of metadata entries, read in place from their encoded bytes.

use std::fmt;

use super::text::shown;

/// The type of a metadata value, as numbered by GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// The type with this id in a file.
    pub const fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The id that files store.
    pub const fn id(self) -> u32 {
        match self {
            Self::U8 => 0,
            Self::I8 => 1,
            Self::U16 => 2,
            Self::I16 => 3,
            Self::U32 => 4,
            Self::I32 => 5,
            Self::F32 => 6,
            Self::Bool => 7,
            Self::String => 8,
            Self::Array => 9,
            Self::U64 => 10,
            Self::I64 => 11,
            Self::F64 => 12,
        }
    }

    /// Bytes of a value of this type; `None` for strings and arrays, whose length varies.
    pub const fn fixed_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value, borrowed from the encoded entry.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    /// A string that is not UTF-8.
    Bytes(&'a [u8]),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl<'a> Value<'a> {
    /// Decodes an entry's bytes: the type, then the payload. `None` when they are not one whole value.
    pub(super) fn decode(raw: &'a [u8]) -> Option<Self> {
        let mut rest = raw;
        let ty = ValueType::from_id(u32::from_le_bytes(split(&mut rest)?))?;
        let value = Self::decode_payload(ty, &mut rest)?;
        rest.is_empty().then_some(value)
    }

    fn decode_payload(ty: ValueType, rest: &mut &'a [u8]) -> Option<Self> {
        Some(match ty {
            ValueType::U8 => Self::U8(u8::from_le_bytes(split(rest)?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(split(rest)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(split(rest)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(split(rest)?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(split(rest)?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(split(rest)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(split(rest)?)),
            ValueType::Bool => Self::Bool(u8::from_le_bytes(split(rest)?) != 0),
            ValueType::U64 => Self::U64(u64::from_le_bytes(split(rest)?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(split(rest)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(split(rest)?)),
            ValueType::String => {
                let len = usize::try_from(u64::from_le_bytes(split(rest)?)).ok()?;
                let (bytes, after) = rest.split_at_checked(len)?;
                *rest = after;
                std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::String)
            }
            ValueType::Array => {
                let element_type = ValueType::from_id(u32::from_le_bytes(split(rest)?))?;
                let len = u64::from_le_bytes(split(rest)?);
                // An array is never inside an array, so it takes all that is left.
                Self::Array(Array { element_type, len, payload: std::mem::take(rest) })
            }
        })
    }

    /// The value as an unsigned number: any integer type that holds no negative value.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U64(v) => Some(v),
            _ => self.as_i64().and_then(|v| u64::try_from(v).ok()),
        }
    }

    /// The value as a signed number: any integer type whose value fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::I8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            Self::U64(v) => i64::try_from(v).ok(),
            Self::I64(v) => Some(v),
            _ => None,
        }
    }

    /// The value of either floating point type.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            _ => None,
        }
    }

    /// The text of a string as llama.cpp takes it: up to its first NUL. `None` for one that is not UTF-8 as well.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(v) => v.split('\0').next(),
            _ => None,
        }
    }

    /// The text of a string for people: as [`as_str`](Self::as_str), with what is not UTF-8 replaced.
    pub fn shown(&self) -> Option<String> {
        match *self {
            Self::String(v) => Some(shown(v.as_bytes())),
            Self::Bytes(v) => Some(shown(v)),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }

    /// The type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) | Self::Bytes(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }
}

/// Takes the first `N` bytes off `rest`.
fn split<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*head)
}

/// The elements of an array value, decoded one by one from the bytes of the entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Array<'a> {
    element_type: ValueType,
    len: u64,
    payload: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of every element; never [`ValueType::Array`].
    pub fn element_type(&self) -> ValueType {
        self.element_type
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> ArrayIter<'a> {
        ArrayIter { element_type: self.element_type, left: self.len, rest: self.payload }
    }

    /// All elements as unsigned numbers; `None` when one of them is no integer or is negative.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        self.iter().map(|value| value.as_u64()).collect()
    }

    /// The encoded elements, without type and length.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl fmt::Debug for Array<'_> {
    /// Type and length only: a vocabulary would fill pages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.element_type, self.len)
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = ArrayIter<'a>;

    fn into_iter(self) -> ArrayIter<'a> {
        self.iter()
    }
}

/// Iterator over the elements of an [`Array`].
#[derive(Clone)]
pub struct ArrayIter<'a> {
    element_type: ValueType,
    left: u64,
    rest: &'a [u8],
}

impl<'a> Iterator for ArrayIter<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        Value::decode_payload(self.element_type, &mut self.rest)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}
