use super::*;
use crate::gguf::{Metadata, OwnedValue, Value, ValueType};

/// One entry of each value type, and arrays.
fn every_type() -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("u8", 200_u8);
    metadata.set("i8", -5_i8);
    metadata.set("u16", 60_000_u16);
    metadata.set("i16", -30_000_i16);
    metadata.set("u32", 4_000_000_000_u32);
    metadata.set("i32", -2_000_000_000_i32);
    metadata.set("f32", 0.5_f32);
    metadata.set("bool", true);
    metadata.set("string", "señal");
    metadata.set("u64", u64::MAX);
    metadata.set("i64", i64::MIN);
    metadata.set("f64", -0.25_f64);
    metadata.set("numbers", vec![1_u32, 2, 3]);
    metadata.set("signed", vec![4_i32, -5]);
    metadata.set("words", vec!["a", "", "ñ"]);
    metadata.set("empty", OwnedValue::Array(ValueType::String, Vec::new()));
    metadata
}

#[test]
fn values_are_read_back_as_set() {
    let metadata = every_type();
    let expected = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-5)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(0.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("señal")),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(-0.25)),
    ];
    for (key, value) in expected {
        assert_eq!(metadata.get(key), Some(value));
        assert_eq!(value.value_type().name(), key);
        assert_eq!(OwnedValue::from(value).value_type(), value.value_type());
    }
    let words = metadata.get("words").unwrap().as_array().unwrap();
    assert_eq!((words.element_type(), words.len()), (ValueType::String, 3));
    assert_eq!(words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>(), ["a", "", "ñ"]);
    let empty = metadata.get("empty").unwrap().as_array().unwrap();
    assert!(empty.is_empty() && empty.iter().next().is_none());
    assert_eq!(empty.element_type(), ValueType::String);
}

#[test]
fn values_survive_a_file() {
    let metadata = every_type();
    let mut bytes = head(0, metadata.len() as u64);
    metadata.encode_into(&mut bytes);
    let read = fuzzing::gguf::header(&bytes).unwrap().metadata;
    assert_eq!(read, metadata);
    assert_eq!(read.keys().collect::<Vec<_>>(), metadata.keys().collect::<Vec<_>>());
    for (key, value) in read.iter() {
        let mut copy = Metadata::new();
        copy.set(key, OwnedValue::from(value));
        assert_eq!(copy.raw(key), read.raw(key), "{key}");
    }
}

#[test]
fn encoded_values_match_the_format() {
    let metadata = every_type();
    assert_eq!(metadata.raw("u16"), Some(b"\x02\0\0\0\x60\xea".as_slice()));
    assert_eq!(metadata.raw("bool"), Some(b"\x07\0\0\0\x01".as_slice()));
    assert_eq!(metadata.raw("string"), Some(b"\x08\0\0\0\x06\0\0\0\0\0\0\0se\xc3\xb1al".as_slice()));
    let signed = b"\x09\0\0\0\x05\0\0\0\x02\0\0\0\0\0\0\0\x04\0\0\0\xfb\xff\xff\xff";
    assert_eq!(metadata.raw("signed"), Some(signed.as_slice()));
    assert_eq!(metadata.raw("absent"), None);
}

#[test]
fn numbers_convert_only_without_loss() {
    let metadata = every_type();
    let value = |key| metadata.get(key).unwrap();
    assert_eq!(value("u64").as_u64(), Some(u64::MAX));
    assert_eq!(value("u64").as_i64(), None);
    assert_eq!(value("i8").as_u64(), None);
    assert_eq!(value("i8").as_i64(), Some(-5));
    assert_eq!(value("u8").as_u64(), Some(200));
    assert_eq!(value("f32").as_u64(), None);
    assert_eq!(value("bool").as_u64(), None);
    assert_eq!(value("u32").as_str(), None);
    assert_eq!(value("numbers").as_array().unwrap().to_u64s(), Some(vec![1, 2, 3]));
    assert_eq!(value("signed").as_array().unwrap().to_u64s(), None);
    assert_eq!(value("words").as_array().unwrap().to_u64s(), None);
}

#[test]
fn set_keeps_the_place_and_remove_keeps_the_order() {
    let mut metadata = Metadata::new();
    for key in ["a", "b", "c"] {
        metadata.set(key, 1_u32);
    }
    metadata.set("b", "longer than before");
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(metadata.remove("a"));
    assert!(!metadata.remove("a"));
    metadata.set("a", 2_u32);
    assert_eq!(metadata.keys().collect::<Vec<_>>(), ["b", "c", "a"]);
    assert_eq!(metadata.get("b").unwrap().as_str(), Some("longer than before"));
    assert!(metadata.contains("a") && !metadata.contains("d"));
}

#[test]
#[should_panic(expected = "one type")]
fn array_of_mixed_types_panics() {
    let mixed = vec![OwnedValue::U8(1), OwnedValue::U16(2)];
    Metadata::new().set("k", OwnedValue::Array(ValueType::U8, mixed));
}
