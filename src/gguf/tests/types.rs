use crate::gguf::{TensorError, TensorInfo, TensorType, TypeError};

#[test]
fn tensor_type_ids_round_trip() {
    let known: Vec<u32> = TensorType::all().map(TensorType::id).collect();
    assert!(known.is_sorted());
    assert_eq!(known.len(), 36);
    for ty in TensorType::all() {
        assert_eq!(TensorType::from_id(ty.id()), Ok(ty));
    }
    for id in (0..=50).filter(|id| !known.contains(id)) {
        let retired = matches!(id, 4 | 5 | 31..=33 | 36..=38);
        assert_eq!(matches!(TensorType::from_id(id), Err(TypeError::Retired { .. })), retired, "{id}");
    }
}

#[test]
fn tensor_type_prints_its_name() {
    assert_eq!(
        format!("{}/{:?}/{:>6}", TensorType::Q4_K, TensorType::IQ2_XXS, TensorType::F32),
        "Q4_K/IQ2_XXS/   F32"
    );
}

#[test]
fn row_bytes_want_whole_blocks() {
    assert_eq!(TensorType::Q8_0.row_bytes(64), Some(68));
    assert_eq!(TensorType::Q6_K.row_bytes(512), Some(420));
    assert_eq!(TensorType::F16.row_bytes(3), Some(6));
    assert_eq!(TensorType::Q4_K.row_bytes(128), None);
    assert_eq!(TensorType::F32.row_bytes(1 << 62), None);
}

#[test]
fn tensor_size_follows_shape_and_type() {
    let info = TensorInfo::new("blk.0.ffn_up_exps.weight", vec![2048, 768, 128], TensorType::Q4_K).unwrap();
    assert_eq!(info.elements(), 2048 * 768 * 128);
    assert_eq!(info.bytes(), 2048 / 256 * 144 * 768 * 128);
    assert_eq!(info.outermost(), 128);
}

#[test]
fn changed_shape_never_panics() {
    let mut info = TensorInfo::new("a", vec![8, 2], TensorType::F32).unwrap();
    info.dims = vec![u64::MAX, u64::MAX];
    assert_eq!((info.elements(), info.bytes(), info.outermost()), (u64::MAX, u64::MAX, u64::MAX));
    info.dims.clear();
    assert_eq!((info.elements(), info.outermost()), (1, 1));
    assert_eq!(info.check(), Err(TensorError::DimensionCount { tensor: "a".into(), dims: 0 }));
}
