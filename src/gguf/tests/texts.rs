//! Texts that llama.cpp loads although they are no text.

use super::*;
use crate::gguf::{Metadata, Value};

#[test]
fn a_key_is_compared_up_to_its_nul_as_in_llama_cpp() {
    let bytes = entry_file(&entry("general.alignment\0x", 4, b"\x40\0\0\0"));
    let header = fuzzing::gguf::header(&bytes).unwrap();
    assert_eq!((header.alignment, header.metadata.keys().next()), (64, Some("general.alignment")));
    // Two keys that are one to llama.cpp's search, which finds the first.
    let bytes = [head(0, 2), entry("a\0", 0, b"\x01"), entry("a", 0, b"\x02")].concat();
    let header = fuzzing::gguf::header(&bytes).unwrap();
    assert_eq!(header.metadata.get("a"), Some(Value::U8(1)));
}

#[test]
fn strings_that_are_not_utf8_keep_their_bytes_and_are_shown_lossily() {
    let bytes = entry_file(&entry(b"k\xff", 8, &text(b"\xc3(x")));
    let header = fuzzing::gguf::header(&bytes).unwrap();
    let (key, value) = header.metadata.iter().next().unwrap();
    assert_eq!((key, value.as_str()), ("k\u{fffd}", None));
    assert_eq!((value, value.shown().as_deref()), (Value::Bytes(b"\xc3(x"), Some("\u{fffd}(x")));
    assert_eq!(header.metadata.raw_entries().next().unwrap().0, b"k\xff");

    let elements = [text("fine"), text(b"\x80"), text("a\0")].concat();
    let header = fuzzing::gguf::header(&entry_file(&entry("k", 9, &array(8, 3, &elements)))).unwrap();
    let array = header.metadata.get("k").and_then(|value| value.as_array()).unwrap();
    let shown: Vec<Option<String>> = array.iter().map(|value| value.shown()).collect();
    assert_eq!(shown, ["fine", "\u{fffd}", "a"].map(|text| Some(text.to_owned())));

    // Set again, as a value with fewer entries is, they are the same bytes.
    let mut again = Metadata::new();
    let owned: Vec<crate::gguf::OwnedValue> = array.iter().map(Into::into).collect();
    again.set("k", crate::gguf::OwnedValue::Array(array.element_type(), owned));
    assert_eq!(again.raw("k"), header.metadata.raw("k"));
}

#[test]
fn names_of_tensors_keep_their_bytes_and_end_at_a_nul() {
    let rows = [tensor(b"a\0b", &[8], 0, 0), tensor(b"b\xf5", &[8], 0, 32)];
    let bytes = tensor_file(&rows, 64);
    let header = fuzzing::gguf::header(&bytes).unwrap();
    let names: Vec<_> = header.tensors.iter().map(|info| (info.name.as_str(), info.raw_name())).collect();
    assert_eq!(names, [("a", &b"a\0b"[..]), ("b\u{fffd}", b"b\xf5")]);
    let twice = tensor_file(&[tensor(b"a", &[8], 0, 0), tensor(b"a\0", &[8], 0, 32)], 64);
    assert_eq!(fault(&twice), Malformation::DuplicateTensor { tensor: "a".into() });
}
