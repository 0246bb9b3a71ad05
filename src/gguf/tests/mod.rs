//! Small files built byte by byte, and the tests that read them.

mod layout;
mod malformed;
mod malformed_tensors;
mod models;
mod properties;
mod shards;
mod sources;
mod texts;
mod types;
mod values;

use super::Malformation;
use crate::fuzzing;

/// The beginning of a file of version 3.
fn head(tensors: u64, entries: u64) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(entries.to_le_bytes());
    bytes
}

/// A length and as many bytes.
fn text(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    [&(text.len() as u64).to_le_bytes(), text].concat()
}

/// A metadata entry: key, value type, payload.
fn entry(key: impl AsRef<[u8]>, ty: u32, payload: &[u8]) -> Vec<u8> {
    [text(key).as_slice(), &ty.to_le_bytes(), payload].concat()
}

/// An array's payload: element type, length, elements.
fn array(ty: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [ty.to_le_bytes().as_slice(), &len.to_le_bytes(), elements].concat()
}

/// A row of the tensor table.
fn tensor(name: impl AsRef<[u8]>, dims: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend((dims.len() as u32).to_le_bytes());
    for dim in dims {
        bytes.extend(dim.to_le_bytes());
    }
    bytes.extend(ty.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

/// A file of these tensors without metadata, its data section `data` zero bytes long.
fn tensor_file(tensors: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut bytes = head(tensors.len() as u64, 0);
    bytes.extend(tensors.concat());
    bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
    bytes
}

/// A file of one metadata entry and no tensor.
fn entry_file(entry: &[u8]) -> Vec<u8> {
    [head(0, 1).as_slice(), entry].concat()
}

/// What is wrong with a file of these bytes.
#[track_caller]
fn fault(bytes: &[u8]) -> Malformation {
    let error = fuzzing::gguf::header(bytes).expect_err("the file is malformed");
    let message = error.to_string();
    assert!(message.starts_with("input: "), "names the file: {message}");
    assert!(!message.contains('\n'), "one line: {message}");
    error.malformation().unwrap_or_else(|| panic!("a malformation: {message}")).clone()
}
