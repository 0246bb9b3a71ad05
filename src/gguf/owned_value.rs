//! Values that are set by the program, and their encoding.

use super::value::{Value, ValueType};

/// A metadata value to be written.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum OwnedValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    /// A string that is not UTF-8.
    Bytes(Vec<u8>),
    /// Elements and their type, which an empty array needs too. All must be of that type, and none an array.
    Array(ValueType, Vec<OwnedValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl OwnedValue {
    /// The type of the value. As [`Value::value_type`](super::Value::value_type), of other variants of the same names.
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
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Appends the encoded value: its type as u32, then the payload.
    ///
    /// # Panics
    /// When an array holds an element of another type than it declares, or another array.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend(self.value_type().id().to_le_bytes());
        self.encode_payload(out);
    }

    fn encode_payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(v) => out.extend(v.to_le_bytes()),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
            Self::String(v) => encode_bytes(v.as_bytes(), out),
            Self::Bytes(v) => encode_bytes(v, out),
            Self::Array(ty, elements) => {
                assert_ne!(*ty, ValueType::Array, "GGUF has no arrays of arrays");
                out.extend(ty.id().to_le_bytes());
                out.extend((elements.len() as u64).to_le_bytes());
                for element in elements {
                    assert_eq!(element.value_type(), *ty, "the elements of an array have one type");
                    element.encode_payload(out);
                }
            }
        }
    }
}

/// Appends a string as GGUF stores it: length as u64, then the bytes.
pub(super) fn encode_bytes(text: &[u8], out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::U8(v) => Self::U8(v),
            Value::I8(v) => Self::I8(v),
            Value::U16(v) => Self::U16(v),
            Value::I16(v) => Self::I16(v),
            Value::U32(v) => Self::U32(v),
            Value::I32(v) => Self::I32(v),
            Value::F32(v) => Self::F32(v),
            Value::Bool(v) => Self::Bool(v),
            Value::U64(v) => Self::U64(v),
            Value::I64(v) => Self::I64(v),
            Value::F64(v) => Self::F64(v),
            Value::String(v) => Self::String(v.to_owned()),
            Value::Bytes(v) => Self::Bytes(v.to_vec()),
            Value::Array(v) => Self::Array(v.element_type(), v.iter().map(Self::from).collect()),
        }
    }
}

macro_rules! owned_value_from {
    ($($rust:ty => $variant:ident;)*) => {$(
        impl From<$rust> for OwnedValue {
            fn from(value: $rust) -> Self {
                Self::$variant(value.into())
            }
        }

        impl From<Vec<$rust>> for OwnedValue {
            fn from(values: Vec<$rust>) -> Self {
                Self::Array(ValueType::$variant, values.into_iter().map(Self::from).collect())
            }
        }
    )*};
}

owned_value_from! {
    u8 => U8;
    i8 => I8;
    u16 => U16;
    i16 => I16;
    u32 => U32;
    i32 => I32;
    f32 => F32;
    bool => Bool;
    &str => String;
    String => String;
    u64 => U64;
    i64 => I64;
    f64 => F64;
}
