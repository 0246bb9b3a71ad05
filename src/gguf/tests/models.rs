//! Models of one file.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::gguf::{GgufError, Metadata, Model, TensorInfo, TensorType, Value, write_model};

fn saved(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

/// Two tensors whose every byte differs from its neighbour.
fn small_model() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "qwen3moe");
    metadata.set("qwen3moe.expert_count", 8_u32);
    let tensor = |name, dims, start| {
        let info = TensorInfo::new(name, dims, TensorType::F32).unwrap();
        let data: Vec<u8> = (0..info.bytes()).map(|i| (start + i) as u8).collect();
        (info, data)
    };
    let mut bytes = Vec::new();
    let tensors = [tensor("a", vec![3], 0), tensor("b", vec![5, 2], 100)];
    write_model(&mut bytes, &metadata, &tensors).unwrap();
    bytes
}

#[test]
fn model_of_one_file_is_opened_and_read() {
    let bytes = small_model();
    let (_dir, path) = saved(&bytes);
    let model = Model::open(&path).unwrap();
    assert_eq!(model.path(), path);
    assert_eq!(model.architecture().unwrap(), "qwen3moe");
    assert_eq!(model.arch_value("expert_count"), Some(Value::U32(8)));
    assert_eq!(model.arch_value("expert_used_count"), None);
    assert_eq!((model.shards().len(), model.alignment()), (1, 32));
    assert_eq!(model.total_bytes(), bytes.len() as u64);
    assert_eq!(model.tensors().iter().map(|t| t.info.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(model.tensor("c").is_none());

    let b = model.tensor("b").unwrap();
    assert_eq!((b.shard, b.info.offset), (0, 32));
    let mut read = [0; 4];
    model.read_exact_at(b, 36, &mut read).unwrap();
    assert_eq!(read, [136, 137, 138, 139]);
    model.read_exact_at(b, 40, &mut []).unwrap();
}

#[test]
fn read_outside_a_tensor_is_refused() {
    let (_dir, path) = saved(&small_model());
    let model = Model::open(&path).unwrap();
    let a = model.tensor("a").unwrap();
    for (offset, len) in [(0, 13), (12, 1), (u64::MAX, 2)] {
        let error = model.read_exact_at(a, offset, &mut vec![0; len]).unwrap_err();
        assert!(matches!(error, GgufError::OutsideTensor { bytes: 12, .. }), "{error}");
    }
}

#[test]
fn file_that_shrinks_in_use_is_reported_with_file_and_tensor() {
    let (_dir, path) = saved(&small_model());
    let model = Model::open(&path).unwrap();
    let b = model.tensor("b").unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(b.file_offset + 10).unwrap();
    model.read_exact_at(b, 0, &mut [0; 10]).unwrap();
    let error = model.read_exact_at(b, 0, &mut [0; 11]).unwrap_err();
    let position = b.file_offset + 10;
    assert!(matches!(&error, GgufError::FileShrank { position: p, .. } if *p == position), "{error}");
    assert!(error.to_string().contains("model.gguf") && error.to_string().contains("\"b\""), "{error}");
}

#[test]
fn missing_bytes_are_refused_except_last_padding() {
    let bytes = small_model();
    let (_dir, path) = saved(&bytes[..bytes.len() - 24]);
    assert!(Model::open(&path).is_ok());
    let (_dir, path) = saved(&bytes[..bytes.len() - 25]);
    let error = Model::open(&path).unwrap_err();
    let fault = error.malformation();
    assert!(matches!(fault, Some(Malformation::DataTruncated { tensor, .. }) if tensor == "b"), "{error}");
    assert!(error.to_string().contains("model.gguf"), "{error}");
}

#[test]
fn bytes_after_the_data_are_ignored() {
    let bytes = small_model();
    let (_dir, path) = saved(&[bytes.as_slice(), b"GGUF but no header follows", &[7; 100]].concat());
    assert_eq!(Model::open(&path).unwrap().tensors().len(), 2);
}

#[test]
fn path_that_is_not_a_regular_file_is_refused() {
    let dir = TempDir::new().unwrap();
    for path in [dir.path(), "/dev/zero".as_ref()] {
        let error = Model::open(path).unwrap_err();
        assert!(matches!(error, GgufError::NotAFile { .. }), "{error}");
    }
    let error = Model::open(&dir.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(&error, GgufError::Open { .. }) && error.to_string().contains("absent.gguf"), "{error}");
}

#[test]
fn file_without_architecture_is_refused_on_use() {
    let (_dir, path) = saved(&tensor_file(&[tensor("a", &[8], 0, 0)], 32));
    let model = Model::open(&path).unwrap();
    assert!(matches!(model.architecture(), Err(GgufError::NoArchitecture { .. })));
    assert_eq!(model.arch_value("expert_count"), None);
    let (_dir, path) = saved(&entry_file(&entry("general.architecture", 4, b"\x01\0\0\0")));
    assert!(matches!(Model::open(&path).unwrap().architecture(), Err(GgufError::NoArchitecture { .. })));
}

#[test]
fn tensor_above_2_gib_in_a_file_above_4_gib_is_read() {
    use std::os::unix::fs::FileExt;

    // 3 GiB + 2 GiB, sparse on disk.
    let (big, next) = (3 << 30, 2 << 30);
    let mut bytes = tensor_file(&[tensor("big", &[big], 24, 0), tensor("next", &[next], 24, big)], 0);
    let data = bytes.len() as u64;
    let (_dir, path) = saved(&bytes);
    bytes.clear();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(data + big + next).unwrap();
    file.write_all_at(b"end of big", data + big - 10).unwrap();
    file.write_all_at(b"end of all", data + big + next - 10).unwrap();

    let model = Model::open(&path).unwrap();
    assert_eq!(model.total_bytes(), data + big + next);
    let mut read = [0; 10];
    model.read_exact_at(model.tensor("big").unwrap(), big - 10, &mut read).unwrap();
    assert_eq!(&read, b"end of big");
    model.read_exact_at(model.tensor("next").unwrap(), next - 10, &mut read).unwrap();
    assert_eq!(&read, b"end of all");

    file.set_len(data + big + next - 1).unwrap();
    let error = Model::open(&path).unwrap_err();
    assert!(
        matches!(error.malformation(), Some(Malformation::DataTruncated { tensor, .. }) if tensor == "next")
    );
}
