//! One test a malformation of version, counts and metadata.

use super::*;
use crate::gguf::ValueType;

#[test]
fn empty_file_is_refused() {
    assert_eq!(fault(b""), Malformation::Empty);
}

#[test]
fn file_of_four_bytes_is_refused() {
    assert_eq!(fault(b"GGUF"), Malformation::HeaderTruncated { what: "the version".into(), len: 4 });
    assert_eq!(fault(b"GGU"), Malformation::WrongMagic { magic: b"GGU".to_vec() });
}

#[test]
fn html_page_is_named() {
    assert_eq!(fault(b"<!DOCTYPE html><html><head><title>Sign in</title>"), Malformation::HtmlPage);
    assert_eq!(fault(b"\xef\xbb\xbf\r\n  <HTML lang=\"en\">"), Malformation::HtmlPage);
}

#[test]
fn git_lfs_pointer_is_named() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 17179869184\n";
    assert_eq!(fault(pointer), Malformation::LfsPointer);
}

#[test]
fn zero_filled_file_is_named() {
    assert_eq!(fault(&[0; 100]), Malformation::ZeroFilled);
}

#[test]
fn other_formats_are_named() {
    for (start, format) in [
        (b"PK\x03\x04archive/data.pkl".as_slice(), "a ZIP archive (perhaps a PyTorch checkpoint)"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (b"\x28\xb5\x2f\xfd\x04", "a zstd archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"tjgg\x03\0\0\0", "a model in a format that came before GGUF"),
        (b"lmgg\0\x7d\0\0", "a model in a format that came before GGUF"),
        (b"\x40\x01\0\0\0\0\0\0{\"__metadata__\":{", "a safetensors file"),
        (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "an XML answer of a server"),
        (b"{\"error\":\"Repository not found\"}", "a JSON text"),
    ] {
        assert_eq!(fault(start), Malformation::OtherFormat { format });
    }
}

#[test]
fn wrong_magic_is_refused() {
    let mut bytes = head(0, 0);
    bytes[0] = b'\n';
    assert_eq!(fault(&bytes), Malformation::WrongMagic { magic: b"\nGUF".to_vec() });
}

#[test]
fn big_endian_file_is_named() {
    assert_eq!(fault(b"GGUF\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), Malformation::BigEndian);
}

#[test]
fn version_one_is_refused() {
    assert_eq!(fault(b"GGUF\x01\0\0\0\0\0\0\0\0\0\0\0"), Malformation::VersionOne);
}

#[test]
fn unknown_versions_are_refused() {
    for version in [0_u8, 4, 99] {
        let bytes = [b"GGUF".as_slice(), &[version, 0, 0, 0], &[0; 16]].concat();
        assert_eq!(fault(&bytes), Malformation::UnknownVersion { version: version.into() });
    }
}

#[test]
fn more_tensors_than_fit_are_refused() {
    for declared in [1 << 60, u64::MAX, 3] {
        let bytes = [head(declared, 0).as_slice(), &[0; 71]].concat();
        assert_eq!(fault(&bytes), Malformation::TensorCount { declared, remaining: 71 });
    }
}

#[test]
fn more_entries_than_fit_are_refused() {
    for declared in [1 << 60, u64::MAX, 3] {
        let bytes = [head(0, declared).as_slice(), &[0; 41]].concat();
        assert_eq!(fault(&bytes), Malformation::EntryCount { declared, remaining: 41 });
    }
}

#[test]
fn end_within_the_header_is_refused() {
    let whole = [
        head(1, 2).as_slice(),
        &entry("k", 4, b"\x01\0\0\0"),
        &entry("a", 9, &array(8, 1, &text("x"))),
        &tensor("t", &[8], 0, 0),
    ]
    .concat();
    for len in 1..whole.len() {
        let found = fault(&whole[..len]);
        let expected = matches!(
            found,
            Malformation::HeaderTruncated { .. }
                | Malformation::WrongMagic { .. }
                | Malformation::EntryCount { .. }
                | Malformation::TensorCount { .. }
                | Malformation::StringLength { .. }
                | Malformation::ArrayLength { .. }
        );
        assert!(expected, "{len} bytes: {found:?}");
    }
    // The last u32 of the offset is missing.
    let what = "the entry of tensor \"t\"".to_owned();
    let len = whole.len() - 4;
    assert_eq!(fault(&whole[..len]), Malformation::HeaderTruncated { what, len: len as u64 });
}

#[test]
fn empty_key_is_refused() {
    let bytes = entry_file(&entry("", 4, b"\x01\0\0\0"));
    assert_eq!(fault(&bytes), Malformation::EmptyKey { index: 0 });
}

#[test]
fn key_that_is_too_long_is_refused() {
    let longest = entry_file(&entry("k".repeat(65_535), 0, b"\x01"));
    assert!(fuzzing::gguf::header(&longest).is_ok());
    let bytes = entry_file(&entry("k".repeat(65_536), 0, b"\x01"));
    assert_eq!(fault(&bytes), Malformation::KeyTooLong { index: 0, bytes: 65_536 });
}

#[test]
fn duplicate_key_is_refused() {
    let bytes = [head(0, 2), entry("a\nb", 0, b"\x01"), entry("a\nb", 1, b"\x02")].concat();
    assert_eq!(fault(&bytes), Malformation::DuplicateKey { key: "a\nb".into() });
}

#[test]
fn string_longer_than_the_file_is_refused() {
    for declared in [1 << 63, u64::MAX, 1 << 31, 4] {
        let payload = [declared.to_le_bytes().as_slice(), b"abc"].concat();
        let bytes = entry_file(&entry("k", 8, &payload));
        let what = "the value of metadata key \"k\"".to_owned();
        assert_eq!(fault(&bytes), Malformation::StringLength { what, declared, remaining: 3 });
    }
}

#[test]
fn key_longer_than_the_file_is_refused() {
    let bytes = [head(0, 1).as_slice(), &(1_u64 << 63).to_le_bytes(), &[0; 6]].concat();
    let what = "the key of metadata entry 0".to_owned();
    assert_eq!(fault(&bytes), Malformation::StringLength { what, declared: 1 << 63, remaining: 6 });
}

#[test]
fn unknown_value_type_is_refused() {
    for id in [13, u32::MAX] {
        let bytes = entry_file(&entry("k", id, &[0; 16]));
        assert_eq!(fault(&bytes), Malformation::UnknownValueType { key: "k".into(), id });
        let bytes = entry_file(&entry("k", 9, &array(id, 0, b"")));
        assert_eq!(fault(&bytes), Malformation::UnknownValueType { key: "k".into(), id });
    }
}

#[test]
fn array_of_arrays_is_refused() {
    let bytes = entry_file(&entry("k", 9, &array(9, 1, &array(0, 1, b"\x01"))));
    assert_eq!(fault(&bytes), Malformation::NestedArray { key: "k".into() });
}

#[test]
fn array_longer_than_the_file_is_refused() {
    for (ty, declared) in [(0, 1 << 60), (10, (u64::MAX / 8) + 1), (8, 1 << 40), (4, 3), (8, 2)] {
        let bytes = entry_file(&entry("k", 9, &array(ty, declared, &[0; 11])));
        let key = "k".into();
        assert_eq!(fault(&bytes), Malformation::ArrayLength { key, declared, remaining: 11 });
    }
}

#[test]
fn bool_other_than_0_or_1_is_refused() {
    let bytes = entry_file(&entry("k", 7, b"\x02"));
    assert_eq!(fault(&bytes), Malformation::InvalidBool { key: "k".into(), byte: 2 });
    let bytes = entry_file(&entry("k", 9, &array(7, 3, b"\x00\x01\xff")));
    assert_eq!(fault(&bytes), Malformation::InvalidBool { key: "k".into(), byte: 255 });
}

#[test]
fn alignment_of_another_type_is_refused() {
    let bytes = entry_file(&entry("general.alignment", 10, b"\x20\0\0\0\0\0\0\0"));
    assert_eq!(fault(&bytes), Malformation::AlignmentType { found: ValueType::U64 });
    let bytes = entry_file(&entry("general.alignment", 9, &array(4, 1, b"\x20\0\0\0")));
    assert_eq!(fault(&bytes), Malformation::AlignmentType { found: ValueType::Array });
}

#[test]
fn alignment_other_than_a_usable_power_of_two_is_refused() {
    for alignment in [0_u32, 3, 33, 1 << 31, u32::MAX] {
        let bytes = entry_file(&entry("general.alignment", 4, &alignment.to_le_bytes()));
        assert_eq!(fault(&bytes), Malformation::Alignment { alignment: alignment.into() });
    }
}
