use moeslice::fuzzing;
use moeslice::gguf::{Model, TensorType, write_model};
use moeslice::moe::{PrunedShape, ShardPolicy};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{Options, verify};
use proptest::prelude::*;

use crate::oracle::{assert_is_cut, assert_metadata};
use crate::sample::{Extras, Random, Sample, Source, names};

fn extras() -> impl Strategy<Value = Extras> {
    any::<[bool; 6]>().prop_map(|[fused, no_gate, biases, selection_bias, scales, shared]| Extras {
        fused,
        no_gate,
        biases,
        selection_bias,
        scales,
        shared,
    })
}

fn types() -> impl Strategy<Value = TensorType> {
    let types = [TensorType::Q8_0, TensorType::Q4_K, TensorType::Q6_K, TensorType::MXFP4, TensorType::F16];
    proptest::sample::select(types.to_vec())
}

prop_compose! {
    fn layer()(ty in types(), extras in extras(), dense in proptest::bool::weighted(0.2)) -> (TensorType, Extras, bool) {
        (ty, extras, dense)
    }
}

/// A model with layers of all kinds; the first always has experts.
fn build(n_expert: u32, layers: &[(TensorType, Extras, bool)], alignment: u32, seed: u64) -> Sample {
    let mut sample = Sample::new("qwen3moe", layers.len() as u32, n_expert, 1, seed);
    sample.metadata.set("general.alignment", alignment);
    for (index, &(ty, extras, dense)) in (0..).zip(layers) {
        if dense && index > 0 {
            sample.tensor(&format!("blk.{index}.ffn_up.weight"), &[256, u64::from(n_expert)], ty);
        } else {
            sample.layer(index, n_expert, ty, extras);
        }
    }
    sample.tensor("output_norm.weight", &[3], TensorType::F32);
    sample
}

/// Models of a few KiB, of kinds that differ in what a cut does to them.
fn tiny() -> Vec<Sample> {
    let layer = |sample: &mut Sample, layer: u32, n: u64| {
        let mut add = |name: &str, dims: &[u64]| {
            sample.tensor(&format!("blk.{layer}.{name}"), dims, TensorType::F32);
        };
        add("ffn_gate_inp.weight", &[4, n]);
        add("exp_probs_b.bias", &[n]);
        add("ffn_up_exps.weight", &[4, 2, n]);
        add("ffn_gate_exps.weight", &[4, 2, n]);
        add("ffn_down_exps.weight", &[2, 4, n]);
    };
    let new = |architecture, n_layer, n_expert| {
        let mut sample = Sample::new(architecture, n_layer, n_expert, 2, 1);
        sample.tensors.clear();
        sample.metadata.set("tokenizer.ggml.tokens", vec!["a".to_owned()]);
        sample
    };
    let mut plain = new("qwen3moe", 2, 5);
    plain.metadata.set("general.size_label", "5x1K");
    layer(&mut plain, 0, 5);
    layer(&mut plain, 1, 5);
    let mut grouped = new("deepseek2", 1, 8);
    grouped.key("expert_group_count", 2_u32).key("expert_group_used_count", 1_u32);
    layer(&mut grouped, 0, 8);
    let mut uneven = new("nemotron_h_moe", 2, 6);
    layer(&mut uneven, 0, 6);
    layer(&mut uneven, 1, 4);
    let mut hash = new("deepseek4", 1, 6);
    hash.key("hash_layer_count", 1_u32);
    layer(&mut hash, 0, 6);
    hash.tensor("blk.0.ffn_gate_tid2eid.weight", &[2, 3], TensorType::I32);
    hash.tensors.last_mut().unwrap().1 = [0, 1, 5, 2, 3, 4].into_iter().flat_map(i32::to_le_bytes).collect();
    vec![plain, grouped, uneven, hash]
}

fn bytes_of(sample: &Sample) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_model(&mut bytes, &sample.metadata, &sample.tensors).unwrap();
    bytes
}

#[test]
fn tiny_models_can_be_cut() {
    for (index, sample) in tiny().iter().enumerate() {
        let bytes = bytes_of(sample);
        assert!(fuzzing::prune::cut(&bytes).unwrap(), "{}", sample.architecture);
        // Where a seed corpus is to be made of them.
        if let Some(folder) = std::env::var_os("MOESLICE_WRITE_SEEDS") {
            let name = format!("{index}_{}", sample.architecture);
            std::fs::write(std::path::Path::new(&folder).join(name), bytes).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_model_is_refused_or_cut_truly(
        sample in 0_usize..4,
        changes in proptest::collection::vec((0.0..1.0_f64, prop_oneof![any::<u8>(), 0_u8..10]), 1..4),
        cut_at in proptest::option::weighted(0.1, 0.0..1.0_f64),
    ) {
        let mut bytes = bytes_of(&tiny()[sample]);
        for (place, value) in changes {
            let at = (place * bytes.len() as f64) as usize;
            bytes[at] = value;
        }
        if let Some(share) = cut_at {
            bytes.truncate((share * bytes.len() as f64) as usize);
        }
        fuzzing::prune::cut(&bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_any_model_keeps_exactly_the_right_experts(
        n_expert in 2_u32..10,
        layers in proptest::collection::vec(layer(), 1..4),
        alignment in proptest::sample::select(vec![32_u32, 64, 4096]),
        seed: u64,
        share in 0.0..1.0_f64,
        shards_of_source in 1_usize..4,
        policy in prop_oneof![
            Just(ShardPolicy::Keep),
            Just(ShardPolicy::Single),
            (1_u64..2_000_000).prop_map(ShardPolicy::Size),
        ],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let sample = build(n_expert, &layers, alignment, seed);
        let mut random = Random(seed);
        let model = match shards_of_source {
            1 => sample.write(&folder.path().join("base.gguf")),
            n => {
                let mut cuts: Vec<usize> =
                    (1..n).map(|_| random.below(sample.tensors.len() + 1)).collect();
                cuts.extend([0, sample.tensors.len()]);
                cuts.sort_unstable();
                let sizes: Vec<usize> = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
                sample.write_shards(&folder.path().join("base"), &sizes)
            }
        };
        let source = Source::of(model);
        let k = 1 + (share * f64::from(n_expert)) as u32;
        let keep = source.random_keep(k, &mut random);
        let options = Options { shards: policy, ..Options::default() };
        let written = source.prune(&keep, &folder.path().join("cut.gguf"), &options).unwrap();
        let pruned = Model::open(&written.files[0].0).unwrap();
        assert_is_cut(&source.model, &pruned, &keep);
        assert_metadata(source.model.metadata(), pruned.metadata(), k, &[]);
        let verified = verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
        prop_assert_eq!(&verified.kept, &keep);
        // The size was known before.
        let shape = PrunedShape::of_count(&source.model, &source.experts, k, &source.provenance).unwrap();
        prop_assert_eq!(shape.file_bytes(policy).unwrap().iter().sum::<u64>(), pruned.total_bytes());
        prop_assert_eq!(names(folder.path()).len(), source.model.shards().len() + written.files.len());

        // A cut of the cut leads back to the first model.
        let again = Source::of(pruned);
        let keep_of_kept = again.random_keep(1 + random.below(k as usize) as u32, &mut random);
        again.prune(&keep_of_kept, &folder.path().join("again.gguf"), &Options { shards: ShardPolicy::Single, ..options }).unwrap();
        let twice = Model::open(&folder.path().join("again.gguf")).unwrap();
        let verified = verify(&source.model, &twice, None, &mut Silent, Interrupt::NEVER).unwrap();
        for (layer, ids) in verified.kept.iter() {
            let direct: Vec<u32> = keep_of_kept[layer].iter().map(|&id| keep[layer][id as usize]).collect();
            prop_assert_eq!(ids, direct);
        }
    }
}
