//! One test a malformation of the tensor table and the data section.

use super::*;
use crate::gguf::{TensorError, TensorType, TypeError};

#[track_caller]
fn tensor_fault(bytes: &[u8]) -> TensorError {
    match fault(bytes) {
        Malformation::Tensor(fault) => fault,
        other => panic!("a fault of a tensor: {other:?}"),
    }
}

#[test]
fn name_that_is_too_long_is_refused() {
    let longest = "n".repeat(63);
    assert!(fuzzing::gguf::header(&tensor_file(&[tensor(&longest, &[8], 0, 0)], 32)).is_ok());
    let bytes = tensor_file(&[tensor("n".repeat(64), &[8], 0, 0)], 32);
    assert_eq!(tensor_fault(&bytes), TensorError::NameTooLong { start: longest, bytes: 64 });
}

#[test]
fn name_longer_than_the_file_is_refused() {
    let bytes = [head(1, 0).as_slice(), &(1_u64 << 63).to_le_bytes(), &[0; 24]].concat();
    let what = "the name of tensor 0".to_owned();
    assert_eq!(fault(&bytes), Malformation::StringLength { what, declared: 1 << 63, remaining: 24 });
}

#[test]
fn tensor_table_of_zero_bytes_is_refused() {
    let bytes = [head(4, 0).as_slice(), &[0; 200]].concat();
    let expected = Malformation::OffsetOverlap { tensor: String::new(), offset: 0, expected: 32 };
    assert_eq!(fault(&bytes), expected);
}

#[test]
fn duplicate_name_is_refused() {
    let bytes = tensor_file(&[tensor("a", &[8], 0, 0), tensor("a", &[8], 0, 32)], 64);
    assert_eq!(fault(&bytes), Malformation::DuplicateTensor { tensor: "a".into() });
}

#[test]
fn too_many_dimensions_are_refused() {
    let bytes = tensor_file(&[tensor("a", &[1; 5], 0, 0)], 32);
    assert_eq!(tensor_fault(&bytes), TensorError::DimensionCount { tensor: "a".into(), dims: 5 });
    let mut bytes = head(1, 0);
    bytes.extend([text("a").as_slice(), &[0xff; 4], &[0; 64]].concat());
    let dims = u32::MAX.into();
    assert_eq!(tensor_fault(&bytes), TensorError::DimensionCount { tensor: "a".into(), dims });
}

#[test]
fn dimension_of_zero_is_refused() {
    let bytes = tensor_file(&[tensor("a", &[8, 0, 2], 0, 0)], 32);
    assert_eq!(tensor_fault(&bytes), TensorError::ZeroDimension { tensor: "a".into(), dim: 1 });
}

#[test]
fn dimensions_whose_product_overflows_are_refused() {
    for dims in [vec![1 << 32, 1 << 32], vec![1 << 63], vec![u64::MAX], vec![1 << 16; 4], vec![1 << 62, 2]] {
        let bytes = tensor_file(&[tensor("a", &dims, 24, 0)], 32);
        assert_eq!(tensor_fault(&bytes), TensorError::TooManyElements { tensor: "a".into(), dims });
    }
}

#[test]
fn tensor_whose_bytes_overflow_is_refused() {
    let dims = vec![1 << 62];
    let bytes = tensor_file(&[tensor("a", &dims, 0, 0)], 32);
    let tensor = "a".into();
    assert_eq!(tensor_fault(&bytes), TensorError::TooManyBytes { tensor, dims, ty: TensorType::F32 });
}

#[test]
fn row_of_partial_blocks_is_refused() {
    for (ty, row) in [(TensorType::Q8_0, 31), (TensorType::Q4_K, 128), (TensorType::MXFP4, 48)] {
        let bytes = tensor_file(&[tensor("a", &[row, 256], ty.id(), 0)], 1 << 16);
        assert_eq!(tensor_fault(&bytes), TensorError::PartialBlock { tensor: "a".into(), row, ty });
    }
}

#[test]
fn unknown_tensor_type_is_refused() {
    for id in [44, 1000, u32::MAX] {
        let bytes = tensor_file(&[tensor("a", &[256], id, 0)], 1024);
        let fault_of_type = TypeError::Unknown { id };
        assert_eq!(fault(&bytes), Malformation::TensorType { tensor: "a".into(), fault: fault_of_type });
    }
}

#[test]
fn retired_tensor_type_is_refused_by_name() {
    let names = [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
    ];
    for (id, name) in names {
        let bytes = tensor_file(&[tensor("a", &[256], id, 0)], 1024);
        let fault_of_type = TypeError::Retired { id, name };
        assert_eq!(fault(&bytes), Malformation::TensorType { tensor: "a".into(), fault: fault_of_type });
    }
}

#[test]
fn unaligned_offset_is_refused() {
    let bytes = tensor_file(&[tensor("a", &[8], 0, 0), tensor("b", &[8], 0, 33)], 96);
    let expected = Malformation::OffsetUnaligned { tensor: "b".into(), offset: 33, alignment: 32 };
    assert_eq!(fault(&bytes), expected);
}

#[test]
fn overlapping_tensors_are_refused() {
    let bytes = tensor_file(&[tensor("a", &[16], 0, 0), tensor("b", &[8], 0, 32)], 96);
    let expected = Malformation::OffsetOverlap { tensor: "b".into(), offset: 32, expected: 64 };
    assert_eq!(fault(&bytes), expected);
}

#[test]
fn tensors_out_of_order_are_refused() {
    let bytes = tensor_file(&[tensor("a", &[8], 0, 32), tensor("b", &[8], 0, 0)], 96);
    let expected = Malformation::OffsetGap { tensor: "a".into(), offset: 32, expected: 0 };
    assert_eq!(fault(&bytes), expected);
}

#[test]
fn hole_between_tensors_is_refused() {
    let bytes = tensor_file(&[tensor("a", &[8], 0, 0), tensor("b", &[8], 0, 64)], 96);
    let expected = Malformation::OffsetGap { tensor: "b".into(), offset: 64, expected: 32 };
    assert_eq!(fault(&bytes), expected);
}

#[test]
fn sizes_whose_sum_overflows_are_refused() {
    let half = 1 << 62;
    let tensors = [tensor("a", &[half], 24, 0), tensor("b", &[half], 24, half)];
    assert_eq!(fault(&tensor_file(&tensors, 32)), Malformation::DataOverflow { tensor: "b".into() });
    // The padding alone, and the header alone, can make it overflow too.
    let tensors = [tensor("a", &[(1 << 63) - 1], 24, 0)];
    assert_eq!(fault(&tensor_file(&tensors, 32)), Malformation::DataOverflow { tensor: "a".into() });
    let tensors = [tensor("a", &[(1 << 63) - 64], 24, 0)];
    assert_eq!(fault(&tensor_file(&tensors, 32)), Malformation::DataOverflow { tensor: "a".into() });
}

#[test]
fn end_within_the_data_is_refused() {
    let tensors = [tensor("a", &[16], 0, 0), tensor("b", &[9], 0, 64), tensor("c", &[8], 0, 128)];
    let whole = tensor_file(&tensors, 160);
    assert!(fuzzing::gguf::header(&whole).is_ok());
    let data = whole.len() as u64 - 160;
    let truncated = |tensor: &str, end, len| Malformation::DataTruncated { tensor: tensor.into(), end, len };
    for (keep, name, end) in [(159, "c", 160), (128, "c", 160), (99, "b", 100), (63, "a", 64), (0, "a", 64)] {
        let len = data + keep;
        assert_eq!(fault(&whole[..len as usize]), truncated(name, data + end, len));
    }
    // Inside the padding between table and data.
    assert_eq!(fault(&whole[..data as usize - 1]), truncated("a", data + 64, data - 1));
}

#[test]
fn shards_joined_end_to_end_are_refused() {
    let one = tensor_file(&[tensor("a", &[9], 0, 0)], 64);
    let position = one.len() as u64;
    assert_eq!(fault(&[one.clone(), one.clone()].concat()), Malformation::JoinedShards { position });
    // The first without the padding of its last tensor.
    let unpadded = &one[..one.len() - 28];
    let position = unpadded.len() as u64;
    assert_eq!(fault(&[unpadded, one.as_slice()].concat()), Malformation::JoinedShards { position });
    // The first without a tensor, padded or not.
    assert_eq!(fault(&[head(0, 0), one.clone()].concat()), Malformation::JoinedShards { position: 24 });
    let padded = tensor_file(&[], 0);
    assert_eq!(fault(&[padded, one].concat()), Malformation::JoinedShards { position: 32 });
}
