//! Usages of a model, held against other quantisations of it.

use std::fs::File;
use std::path::Path;

use moeslice::gguf::{TensorInfo, TensorType, write_model};
use moeslice::moe::MoeModel;
use moeslice::usage::{ModelMatch, ProfiledModel, Usage, UsageError};

use crate::golden::at;

const MODEL: &str = "models/moeslice-demo-Q8_0.gguf";
const USAGE: &str = "tests/golden/usage-0.1.0.json";

fn f16(weight: f32) -> [u8; 2] {
    let (bits, sign) = (weight.to_bits(), ((weight.to_bits() >> 16) & 0x8000) as u16);
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 15;
    let magnitude = match exponent {
        ..=0 => (weight.abs() * 2_f32.powi(24)).round() as u16,
        _ => ((exponent as u32) << 10) as u16 + (((bits & 0x7f_ffff) + 0x1000) >> 13) as u16,
    };
    (sign | magnitude).to_le_bytes()
}

/// The demo model with its routers changed.
fn variant(path: &Path, ty: TensorType, convert: impl Fn(f32) -> Vec<u8>) -> MoeModel {
    let model = MoeModel::open(&at(MODEL)).expect("the model").file;
    let tensors: Vec<(TensorInfo, Vec<u8>)> = model
        .tensors()
        .iter()
        .map(|tensor| {
            let mut data = vec![0; tensor.info.bytes() as usize];
            model.read_exact_at(tensor, 0, &mut data).expect("the model reads");
            if !tensor.info.name.ends_with("ffn_gate_inp.weight") {
                return (tensor.info.clone(), data);
            }
            let weights = data.as_chunks::<4>().0.iter().map(|&weight| f32::from_le_bytes(weight));
            let info =
                TensorInfo::new(tensor.info.name.clone(), tensor.info.dims.clone(), ty).expect("a tensor");
            (info, weights.flat_map(&convert).collect())
        })
        .collect();
    write_model(&mut File::create(path).expect("a file"), model.metadata(), &tensors).expect("a model");
    MoeModel::open(path).expect("the variant")
}

#[test]
fn usage_is_accepted_for_a_model_whose_routers_were_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = MoeModel::open(&at(MODEL)).expect("the model");
    let halved = variant(&folder.path().join("f16.gguf"), TensorType::F16, |weight| f16(weight).to_vec());
    let tuned =
        variant(&folder.path().join("tuned.gguf"), TensorType::F16, |weight| f16(weight * 1.02).to_vec());
    assert_ne!(model.identity.router_hash, halved.identity.router_hash);

    let old = Usage::read(&at(USAGE)).expect("the usage");
    let matched = |usage: &Usage, model: &MoeModel| {
        usage.model_match(&model.identity, Path::new("u.json"), Path::new("m.gguf"))
    };
    // Both ways: from the original to the conversion, and back.
    for (profiled, other) in [(&model, &halved), (&halved, &model)] {
        let mut usage = old.clone();
        usage.model = ProfiledModel::new(&at(MODEL), &profiled.identity);
        let found = matched(&usage, other).expect("the same model");
        assert_eq!(found, ModelMatch::ConvertedRouters);
        assert!(found.remark().expect("a remark").contains("precision"));
        assert!(matches!(matched(&usage, &tuned), Err(UsageError::OtherModel { .. })));
        let again = Usage::parse(usage.to_json().as_bytes(), Path::new("u.json")).expect("it reads back");
        assert_eq!(again, usage);
    }
    // Without a sketch, the hash alone counts.
    assert_eq!(matched(&old, &model).expect("its model"), ModelMatch::Same);
    assert!(matches!(matched(&old, &halved), Err(UsageError::OtherModel { .. })));
}
