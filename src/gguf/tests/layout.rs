use super::*;
use crate::gguf::{GgufError, Layout, Metadata, TensorInfo, TensorType, write_model};

fn info(name: &str, elements: u64) -> TensorInfo {
    TensorInfo::new(name, vec![elements], TensorType::F32).unwrap()
}

fn aligned(alignment: u32) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.alignment", alignment);
    metadata
}

#[test]
fn written_file_matches_the_format_byte_by_byte() {
    let mut metadata = Metadata::new();
    metadata.set("k", 7_u8);
    let data = vec![0x11; 36];
    let mut file = Vec::new();
    write_model(&mut file, &metadata, &[(info("a", 9), data.clone()), (info("b", 1), vec![0x22; 4])])
        .unwrap();
    let mut expected = head(2, 1);
    expected.extend(entry("k", 0, b"\x07"));
    expected.extend(tensor("a", &[9], 0, 0));
    expected.extend(tensor("b", &[1], 0, 64));
    expected.resize(128, 0);
    expected.extend(data);
    expected.resize(192, 0);
    expected.extend([0x22; 4]);
    expected.resize(224, 0);
    assert_eq!(file, expected);
}

#[test]
fn layout_follows_every_alignment() {
    for alignment in [1, 8, 64, 4096, 1 << 24] {
        let tensors = [info("a", 9), info("b", 1)];
        let layout = Layout::new(&aligned(alignment), &tensors, alignment.into(), 3).unwrap();
        let padded = |n: u64| n.next_multiple_of(alignment.into());
        assert_eq!(layout.data_offset() % u64::from(alignment), 0);
        assert_eq!(layout.tensors()[1].offset, padded(36));
        assert_eq!((layout.padding_after(0), layout.padding_after(1)), (padded(36) - 36, padded(4) - 4));
        assert_eq!(layout.padding_after(2), 0);
        assert_eq!(layout.file_bytes(), layout.data_offset() + padded(36) + padded(4));

        let mut bytes = layout.header().to_vec();
        bytes.resize(layout.file_bytes() as usize, 0);
        let read = fuzzing::gguf::header(&bytes).unwrap();
        assert_eq!((read.alignment, read.data_offset), (alignment.into(), layout.data_offset()));
        assert_eq!(read.tensors, layout.tensors());
    }
}

#[test]
fn version_two_and_three_are_kept() {
    for version in [2, 3] {
        let layout = Layout::new(&Metadata::new(), &[info("a", 8)], 32, version).unwrap();
        let bytes = [layout.header(), &[0; 32]].concat();
        assert_eq!(fuzzing::gguf::header(&bytes).unwrap().version, version);
    }
}

#[test]
fn layout_without_tensors_ends_after_its_padding() {
    let layout = Layout::new(&Metadata::new(), &[], 32, 3).unwrap();
    assert_eq!((layout.header().len(), layout.file_bytes()), (32, 32));
}

#[test]
fn scalar_without_dimensions_gets_one() {
    let bytes = tensor_file(&[tensor("s", &[], 0, 0), tensor("", &[2, 1], 0, 32)], 64);
    let header = fuzzing::gguf::header(&bytes).unwrap();
    assert_eq!((header.tensors[0].dims.as_slice(), header.tensors[0].bytes()), ([1].as_slice(), 4));
    assert_eq!((header.tensors[1].name.as_str(), header.tensors[1].dims.as_slice()), ("", [2, 1].as_slice()));
    let layout = Layout::new(&header.metadata, &header.tensors, 32, 3).unwrap();
    let expected = tensor_file(&[tensor("s", &[1], 0, 0), tensor("", &[2, 1], 0, 32)], 0);
    assert_eq!(layout.header(), expected);
}

#[test]
fn invalid_layout_is_refused() {
    #[track_caller]
    fn refused(metadata: &Metadata, tensors: &[TensorInfo], alignment: u64, version: u32) -> Malformation {
        let error = Layout::new(metadata, tensors, alignment, version).unwrap_err();
        assert!(matches!(error, GgufError::Layout { .. }));
        error.malformation().unwrap().clone()
    }
    let none = Metadata::new();
    assert_eq!(refused(&none, &[], 32, 1), Malformation::UnknownVersion { version: 1 });
    assert_eq!(refused(&none, &[], 48, 3), Malformation::Alignment { alignment: 48 });
    assert_eq!(refused(&none, &[], 64, 3), Malformation::AlignmentMismatch { asked: 64, declared: 32 });
    let mismatch = Malformation::AlignmentMismatch { asked: 32, declared: 64 };
    assert_eq!(refused(&aligned(64), &[], 32, 3), mismatch);
    let twice = [info("a", 1), info("a", 1)];
    assert_eq!(refused(&none, &twice, 32, 3), Malformation::DuplicateTensor { tensor: "a".into() });
    let mut huge = info("a", 1);
    huge.dims = vec![(1 << 61) - 1];
    huge.ty = TensorType::F32;
    assert_eq!(refused(&none, &[huge], 32, 3), Malformation::DataOverflow { tensor: "a".into() });
    let mut broken = info("a", 1);
    broken.dims = vec![0];
    assert!(matches!(refused(&none, &[broken], 32, 3), Malformation::Tensor(_)));
    let mut nameless = Metadata::new();
    nameless.set("", 1_u8);
    assert_eq!(refused(&nameless, &[], 32, 3), Malformation::EmptyKey { index: 0 });
}

#[test]
fn data_of_wrong_size_are_refused() {
    let error = write_model(&mut Vec::new(), &Metadata::new(), &[(info("a", 2), vec![0; 7])]).unwrap_err();
    assert!(matches!(error, GgufError::DataSize { expected: 8, found: 7, .. }), "{error}");
}

#[test]
fn failing_writer_is_reported() {
    let mut full = [0_u8; 16];
    let error = write_model(&mut full.as_mut_slice(), &Metadata::new(), &[]).unwrap_err();
    assert!(matches!(error, GgufError::Write { .. }), "{error}");
}
