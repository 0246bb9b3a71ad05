use super::*;
use crate::moe::test_model::TestModel;

const N_EMBD: u64 = 64;
const N: u64 = 4;

/// Weights as routers have them, from a seed.
fn weights(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..N_EMBD * N).map(|_| (next() + next() + next()) / 10.0).collect()
}

fn f16_of(value: f32) -> u16 {
    // By search over all finite numbers of the sign: slow and plainly right.
    let sign = if value < 0.0 { 0x8000 } else { 0 };
    let distance = |half: u16| (f32_of_f16(half).abs() - value.abs()).abs();
    let nearest = (0..0x7c00_u16).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap();
    nearest | sign
}

fn encode(weights: &[f32], ty: TensorType) -> Vec<u8> {
    match ty {
        TensorType::F32 => weights.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
        TensorType::F16 => weights.iter().flat_map(|&weight| f16_of(weight).to_le_bytes()).collect(),
        TensorType::BF16 => {
            let rounded = |weight: &f32| ((weight.to_bits() + 0x8000) >> 16) as u16;
            weights.iter().flat_map(|weight| rounded(weight).to_le_bytes()).collect()
        }
        TensorType::Q8_0 => weights
            .chunks(32)
            .flat_map(|block| {
                let scale = block.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs())) / 127.0;
                let steps = block.iter().map(move |weight| (weight / scale).round() as i8 as u8);
                f16_of(scale).to_le_bytes().into_iter().chain(steps).collect::<Vec<u8>>()
            })
            .collect(),
        _ => panic!("no encoder for {ty}"),
    }
}

/// The routers of a model of two layers, stored in a type; seeds tell the weights.
fn sketch(seeds: [u64; 2], ty: TensorType) -> Option<RouterSketch> {
    let mut model = TestModel::new("qwen3moe", 2, N as u32, 2);
    for (layer, seed) in (0..).zip(seeds) {
        model.typed(&format!("blk.{layer}.ffn_gate_inp.weight"), &[N_EMBD, N], ty);
        if let TensorType::F32 | TensorType::F16 | TensorType::BF16 | TensorType::Q8_0 = ty {
            model.tensors.last_mut().unwrap().1 = encode(&weights(seed), ty);
        }
        model.part(layer, "ffn_up_exps.weight", &[N_EMBD, 5, N]).part(
            layer,
            "ffn_down_exps.weight",
            &[5, N_EMBD, N],
        );
    }
    let opened = model.open();
    RouterSketch::of(&opened.model, &opened.experts()).unwrap()
}

fn compare(a: &Option<RouterSketch>, b: &Option<RouterSketch>) -> Option<RouterMatch> {
    RouterMatch::of(("a", a.as_ref()), ("b", b.as_ref()))
}

const TYPES: [TensorType; 4] = [TensorType::F32, TensorType::F16, TensorType::BF16, TensorType::Q8_0];

#[test]
fn routers_in_another_type_are_recognised() {
    for a in TYPES {
        for b in TYPES.into_iter().filter(|&b| b != a) {
            let (one, other) = (sketch([1, 2], a), sketch([1, 2], b));
            assert_eq!(compare(&one, &other), Some(RouterMatch::Converted), "{a} {b}");
        }
    }
}

#[test]
fn other_routers_are_not_recognised_in_any_type() {
    for a in TYPES {
        for b in TYPES {
            assert_eq!(compare(&sketch([1, 2], a), &sketch([1, 3], b)), None, "{a} {b}");
        }
    }
}

#[test]
fn routers_of_one_type_are_told_apart_by_their_hash_alone() {
    let one = sketch([1, 2], TensorType::F32);
    assert_eq!(compare(&one, &one), None);
    assert_eq!(RouterMatch::of(("a", None), ("a", one.as_ref())), Some(RouterMatch::Same));
    assert_eq!(RouterMatch::of(("a", None), ("b", one.as_ref())), None);
}

#[test]
fn routers_of_nothing_but_zeros_are_no_evidence() {
    let zeros = |ty: &str| {
        let layer = LayerSketch { layer: 0, ty: ty.into(), values: vec![0.0; 16], block_max: vec![0.0; 16] };
        Some(RouterSketch(vec![layer]))
    };
    assert_eq!(compare(&zeros("F32"), &zeros("F16")), None);
}

#[test]
fn types_without_a_decoder_have_no_sketch() {
    assert_eq!(sketch([1, 2], TensorType::Q4_0), None);
}

#[test]
fn a_sketch_reads_back_from_metadata() {
    let sketch = sketch([5, 6], TensorType::Q8_0).unwrap();
    let mut metadata = Metadata::new();
    sketch.write_into(&mut metadata);
    assert_eq!(RouterSketch::read(&metadata).as_ref(), Some(&sketch));
    assert_eq!(sketch.layers().len(), 2);
    RouterSketch::remove_from(&mut metadata);
    assert!(metadata.is_empty());
    assert_eq!(RouterSketch::read(&metadata), None);
}

#[test]
fn halves_are_decoded() {
    let cases =
        [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 5.960_464_5e-8), (0x7bff, 65504.0), (0x3555, 0.333_251_95)];
    for (half, value) in cases {
        assert_eq!(f32_of_f16(half), value);
    }
    assert!(f32_of_f16(0x7e00).is_nan() && f32_of_f16(0x7c00).is_infinite());
}
