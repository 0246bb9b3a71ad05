//! A model without its block of multi-token prediction is the trunk, and nothing of the block is left behind.

use crate::proof::{Subject, Tolerance, check_mask, choose, load, outputs, two_keeps};
use crate::support::observed::Nothing;
use moeslice::gguf::{self, Value};
use moeslice::moe::{Experts, Identity, KeptExperts, Provenance, PrunedShape, ShardPolicy};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{self, VerifyError, Where};
use std::path::Path;

/// Cuts without the block, once to all experts and once to fewer.
pub fn dropped(subject: &Subject, tolerance: Tolerance) {
    let trunk = subject.experts.without_mtp(&subject.file).unwrap_or_else(|e| panic!("{e}"));
    let whole = outputs(subject, &subject.model, &mut Nothing);
    for k in [trunk.n_expert, two_keeps(&trunk)[0]] {
        // The mask wants a choice for every layer of the model, the cut one for those that stay.
        let of_all = choose(&subject.experts, k, 5);
        let kept: KeptExperts = of_all
            .iter()
            .filter(|(layer, _)| *layer < trunk.n_layer)
            .map(|(layer, ids)| (layer, ids.to_vec()))
            .collect();
        let path =
            subject.cut_of(&trunk, &kept, &format!("trunk-{k}.gguf")).unwrap_or_else(|e| panic!("{e}"));
        check_file(subject, &trunk, &kept, &path);
        if k < trunk.n_expert {
            check_mask(subject, &of_all, &path, tolerance);
        } else {
            let cut = load(&path, &subject.placement);
            assert!(outputs(subject, &cut, &mut Nothing) == whole, "the trunk computes what it did");
        }
    }
    println!("{}: right without its block", trunk.architecture);
}

fn check_file(subject: &Subject, trunk: &Experts, kept: &KeptExperts, path: &Path) {
    let cut = gguf::Model::open(path).expect("a file that we read");
    let (n_before, n_layer) = (subject.experts.n_layer, subject.experts.n_layer - 1);
    assert_eq!((trunk.n_layer, trunk.n_mtp), (n_layer, 0));
    assert_eq!(cut.arch_value("nextn_predict_layers"), None);
    assert_eq!(cut.arch_value("block_count"), Some(Value::U32(n_layer)));
    for (key, value) in subject.file.metadata().iter() {
        let Value::Array(before) = value else { continue };
        if before.len() == u64::from(n_before) && !key.ends_with("rope.dimension_sections") {
            let after = cut.metadata().get(key).and_then(|value| value.as_array()).expect("the array");
            assert_eq!(after.len(), u64::from(n_layer), "{key}");
            assert!(before.payload().starts_with(after.payload()), "{key}");
        }
    }
    let block = format!("blk.{n_layer}.");
    let left: Vec<&str> = subject.tiny.tensors.iter().map(|(info, _)| info.name.as_str()).collect();
    let (gone, left): (Vec<&str>, Vec<&str>) = left.into_iter().partition(|name| name.starts_with(&block));
    assert!(!gone.is_empty());
    assert_eq!(cut.tensors().iter().map(|tensor| tensor.info.name.as_str()).collect::<Vec<_>>(), left);

    let identity = Identity::of(&subject.file, &subject.experts).expect("an identity");
    let provenance = Provenance::new(&subject.file, &identity, "frequency", "test", Vec::new());
    let shape = PrunedShape::new(&subject.file, trunk, kept, &provenance).expect("a shape");
    assert_eq!(shape.file_bytes(ShardPolicy::Keep).expect("sizes"), [cut.total_bytes()]);

    for keep in [Some(kept), None] {
        let verified = slice::verify(&subject.file, &cut, keep, &mut Silent, Interrupt::NEVER);
        assert_eq!(verified.unwrap_or_else(|e| panic!("{e}")).tensors, left.len() as u64);
    }
    // The block may be missing only because the file says so.
    let edited = path.with_extension("edited");
    let mut metadata = cut.metadata().clone();
    assert!(metadata.remove("moeslice.mtp"));
    let tensors: Vec<_> = cut
        .tensors()
        .iter()
        .map(|tensor| {
            let mut bytes = vec![0; tensor.info.bytes() as usize];
            cut.read_exact_at(tensor, 0, &mut bytes).expect("the tensor");
            (tensor.info.clone(), bytes)
        })
        .collect();
    let mut out = std::fs::File::create(&edited).expect("a file");
    gguf::write_model(&mut out, &metadata, &tensors).expect("a model");
    let edited = gguf::Model::open(&edited).expect("a file that we read");
    match slice::verify(&subject.file, &edited, None, &mut Silent, Interrupt::NEVER) {
        Err(VerifyError::Differs(found)) => assert!(matches!(found.first.place, Where::Metadata { .. })),
        Err(VerifyError::Kept { .. }) => {}
        other => panic!("{other:?}"),
    }
}
