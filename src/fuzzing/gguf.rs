//! What fuzzing and property tests do with arbitrary bytes.

use std::path::Path;

use crate::gguf::{GgufError, Header, Layout, ReadAt, Value};

/// Parses `bytes` as a GGUF file and, if that succeeds, checks what must then hold.
///
/// # Panics
/// When an accepted header breaks a promise: that is what the callers look for.
pub fn header(bytes: &[u8]) -> Result<Header, GgufError> {
    let path = Path::new("input");
    let header = Header::parse(&bytes, path)?;

    for key in header.metadata.keys() {
        let value = header.metadata.get(key).expect("an accepted entry decodes");
        if let Value::Array(array) = value {
            assert_eq!(array.iter().count() as u64, array.len(), "every element of {key:?} decodes");
        }
    }
    for info in &header.tensors {
        info.check().expect("an accepted tensor is sound");
        let row = info.ty.row_bytes(info.dims[0]).expect("whole blocks");
        assert_eq!(info.bytes(), row * info.dims[1..].iter().product::<u64>());
    }

    let Header { metadata, tensors, alignment, version, .. } = &header;
    let layout =
        Layout::new(metadata, tensors, *alignment, *version).expect("an accepted header can be written");
    assert_eq!(layout.tensors(), tensors);
    // A scalar listed without dimensions is written with one, so that the table grows.
    if tensors.iter().all(|info| info.dims != [1]) {
        let end = header.header_end as usize;
        assert_eq!(layout.header()[..end], bytes[..end], "an unchanged header keeps its bytes");
        if !tensors.is_empty() {
            assert_eq!(layout.data_offset(), header.data_offset);
        }
    }
    assert_eq!(layout.file_bytes() - layout.data_offset(), header.data_bytes);

    header.check_data(&bytes, path)?;
    if let Some(last) = tensors.last() {
        let len = (&bytes).byte_len().expect("a slice has a length");
        assert!(header.data_offset + last.offset + last.bytes() <= len, "all data are there");
    }
    Ok(header)
}
