//! What holds for any header, and for any bytes.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::gguf::{Layout, Metadata, OwnedValue, TensorInfo, TensorType, ValueType};

fn scalar() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        any::<u8>().prop_map(OwnedValue::from),
        any::<i8>().prop_map(OwnedValue::from),
        any::<u16>().prop_map(OwnedValue::from),
        any::<i16>().prop_map(OwnedValue::from),
        any::<u32>().prop_map(OwnedValue::from),
        any::<i32>().prop_map(OwnedValue::from),
        any::<f32>().prop_map(OwnedValue::from),
        any::<bool>().prop_map(OwnedValue::from),
        ".{0,12}".prop_map(OwnedValue::from),
        any::<u64>().prop_map(OwnedValue::from),
        any::<i64>().prop_map(OwnedValue::from),
        any::<f64>().prop_map(OwnedValue::from),
    ]
}

fn value() -> impl Strategy<Value = OwnedValue> {
    let repeated = (scalar(), 0_usize..5).prop_map(|(value, n)| {
        OwnedValue::Array(value.value_type(), std::iter::repeat_n(value, n).collect())
    });
    let words = vec(".{0,6}", 0..8).prop_map(|words| {
        OwnedValue::Array(ValueType::String, words.into_iter().map(OwnedValue::from).collect())
    });
    prop_oneof![3 => scalar(), 1 => repeated, 1 => words, 1 => vec(any::<i32>(), 0..9).prop_map(OwnedValue::from)]
}

fn tensor_info() -> impl Strategy<Value = (Vec<u64>, TensorType)> {
    let types: Vec<_> = TensorType::all().collect();
    (proptest::sample::select(types), 1_u64..4, vec(1_u64..6, 0..=3)).prop_map(|(ty, blocks, outer)| {
        let dims = std::iter::once(blocks * ty.block_elements()).chain(outer).collect();
        (dims, ty)
    })
}

prop_compose! {
    /// A whole file of random metadata and tensors, its data bytes counting up.
    fn file()(
        entries in btree_map("[a-zé.]{1,12}", value(), 0..6),
        tensors in btree_map("[a-z.0-9]{0,20}", tensor_info(), 0..6),
        alignment in proptest::option::of(0_u32..13),
        version in 2_u32..=3,
    ) -> (Layout, Vec<u8>) {
        let mut metadata = Metadata::new();
        for (key, value) in entries {
            metadata.set(&key, value);
        }
        if let Some(shift) = alignment {
            metadata.set("general.alignment", 1_u32 << shift);
        }
        let tensors: Vec<_> = tensors
            .into_iter()
            .map(|(name, (dims, ty))| TensorInfo::new(name, dims, ty).expect("a sound tensor"))
            .collect();
        let alignment = 1 << alignment.unwrap_or(5);
        let layout = Layout::new(&metadata, &tensors, alignment, version).expect("a sound file");
        let mut bytes = layout.header().to_vec();
        bytes.extend((layout.data_offset()..layout.file_bytes()).map(|at| at as u8));
        (layout, bytes)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn file_read_and_laid_out_again_is_identical((layout, bytes) in file()) {
        let header = fuzzing::gguf::header(&bytes).expect("what was laid out is accepted");
        prop_assert_eq!(&header.tensors, layout.tensors());
        let again = Layout::new(&header.metadata, &header.tensors, header.alignment, header.version).unwrap();
        prop_assert_eq!(again.header(), layout.header());
        prop_assert_eq!(again.file_bytes(), bytes.len() as u64);
    }

    #[test]
    fn changed_file_never_panics(
        (_, mut bytes) in file(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = fuzzing::gguf::header(&bytes);
    }

    #[test]
    fn extreme_number_never_panics(
        (layout, mut bytes) in file(),
        at in any::<prop::sample::Index>(),
        number in prop_oneof![
            Just(0), Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1), Just(1 << 60), Just(1 << 32), any::<u64>()
        ],
    ) {
        let at = at.index(layout.header().len() - 8);
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let _ = fuzzing::gguf::header(&bytes);
    }

    #[test]
    fn truncated_file_is_refused_or_lacks_only_padding(
        (layout, mut bytes) in file(),
        at in any::<prop::sample::Index>(),
    ) {
        bytes.truncate(at.index(bytes.len()));
        let accepted = fuzzing::gguf::header(&bytes).is_ok();
        if let Some(last) = layout.tensors().len().checked_sub(1) {
            let needed = layout.file_bytes() - layout.padding_after(last);
            prop_assert_eq!(accepted, bytes.len() as u64 >= needed);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..600), magic in any::<bool>(), counts in any::<[u8; 2]>()) {
        let start = if magic { head(counts[0].into(), (counts[1] % 8).into()) } else { Vec::new() };
        let _ = fuzzing::gguf::header(&[start, bytes].concat());
    }
}
