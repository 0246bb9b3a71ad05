//! What a cut has to be, worked out a second time: by lists of names and plain loops over experts, with nothing of the slicer.

use moeslice::gguf::{Metadata, Model, Tensor, Value};
use moeslice::moe::KeptExperts;

/// Ends of the names of tensors whose outermost dimension counts experts.
const EXPERT_TENSORS: [&str; 17] = [
    ".ffn_gate_inp.weight",
    ".ffn_gate_inp.bias",
    ".ffn_gate_exps.weight",
    ".ffn_up_exps.weight",
    ".ffn_gate_up_exps.weight",
    ".ffn_down_exps.weight",
    ".ffn_gate_exps.bias",
    ".ffn_up_exps.bias",
    ".ffn_down_exps.bias",
    ".exp_probs_b.bias",
    ".exp_probs_b_vl.bias",
    ".ffn_gate_exps.scale",
    ".ffn_up_exps.scale",
    ".ffn_down_exps.scale",
    ".ffn_gate_exps.input_scale",
    ".ffn_up_exps.input_scale",
    ".ffn_down_exps.input_scale",
];

pub fn data(model: &Model, tensor: &Tensor) -> Vec<u8> {
    let mut data = vec![0; tensor.info.bytes() as usize];
    model.read_exact_at(tensor, 0, &mut data).unwrap();
    data
}

fn layer_of(name: &str) -> Option<u32> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Asserts that `pruned` has of each tensor of `base` exactly the experts `keep`, and everything else unchanged.
pub fn assert_is_cut(base: &Model, pruned: &Model, keep: &KeptExperts) {
    assert_eq!(base.tensors().len(), pruned.tensors().len());
    for (a, b) in base.tensors().iter().zip(pruned.tensors()) {
        let name = &a.info.name;
        assert_eq!((name, a.info.ty), (&b.info.name, b.info.ty));
        let kept = layer_of(name).and_then(|layer| keep.layer(layer));
        let is_expert = EXPERT_TENSORS.iter().any(|end| name.ends_with(end));
        let (whole, cut) = (data(base, a), data(pruned, b));
        match kept.filter(|_| is_expert) {
            Some(kept) => {
                let n = *a.info.dims.last().unwrap() as usize;
                let mut dims = a.info.dims.clone();
                *dims.last_mut().unwrap() = kept.len() as u64;
                assert_eq!(b.info.dims, dims, "{name}");
                let slab = whole.len() / n;
                let expected: Vec<u8> =
                    kept.iter().flat_map(|&e| whole[e as usize * slab..][..slab].to_vec()).collect();
                assert!(cut == expected, "{name}: other experts than {kept:?}");
            }
            None => {
                assert_eq!(a.info.dims, b.info.dims, "{name}");
                if !name.ends_with(".ffn_gate_tid2eid.weight") {
                    assert!(whole == cut, "{name} changed");
                }
            }
        }
    }
}

/// Asserts that the metadata are those of `base` but for the number of experts, `moeslice.*`, `split.*` and `changed`.
pub fn assert_metadata(base: &Metadata, pruned: &Metadata, n_expert: u32, changed: &[&str]) {
    let theirs =
        |key: &&str| !key.starts_with("moeslice.") && !key.starts_with("split.") && !changed.contains(key);
    let keys =
        |metadata: &Metadata| -> Vec<String> { metadata.keys().filter(theirs).map(str::to_owned).collect() };
    assert_eq!(keys(base), keys(pruned));
    for key in base.keys().filter(theirs) {
        if key.ends_with(".expert_count") {
            assert_eq!(pruned.get(key), Some(Value::U32(n_expert)));
        } else {
            assert_eq!(base.raw(key), pruned.raw(key), "{key}");
        }
    }
}

/// The original ids that a pruned file tells.
pub fn ids(model: &Model, layer: u32) -> Vec<u32> {
    let value = model.metadata().get(&format!("moeslice.expert_ids.{layer}")).unwrap();
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
