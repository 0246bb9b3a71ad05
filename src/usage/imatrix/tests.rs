use super::*;
use crate::gguf::{Metadata, TensorInfo};
use crate::moe::test_model::{TestModel, f32_tensor as tensor, write_file as write};
use std::path::PathBuf;
use tempfile::TempDir;

const N: u64 = TestModel::N;
const WIDTH: u64 = TestModel::WIDTH;

/// A model of two layers with [`N`] experts each, two of them used; and an imatrix of it that a test can change.
struct Case {
    folder: TempDir,
    metadata: Metadata,
    tensors: Vec<(TensorInfo, Vec<u8>)>,
}

impl Case {
    /// Both layers count `counts`, in three matrices each.
    fn new(counts: &[f32]) -> Case {
        let mut case = Case::empty();
        for layer in 0..2 {
            case.layer(layer, counts);
        }
        case
    }

    fn empty() -> Case {
        let folder = TempDir::new().unwrap();
        TestModel::small().write(&folder.path().join("model.gguf"));
        let mut metadata = Metadata::new();
        metadata.set("general.type", "imatrix");
        metadata.set("imatrix.datasets", vec!["a.txt".to_owned(), "b.txt".to_owned()]);
        metadata.set("imatrix.chunk_count", 3u32);
        metadata.set("imatrix.chunk_size", 512u32);
        Case { folder, metadata, tensors: vec![] }
    }

    fn layer(&mut self, layer: u32, counts: &[f32]) {
        for (name, row) in [("gate", WIDTH), ("up", WIDTH), ("down", 2)] {
            let name = format!("blk.{layer}.ffn_{name}_exps.weight");
            let sums = vec![1.0; (row * N) as usize];
            self.tensors.push(tensor(&format!("{name}.in_sum2"), &[row, N], &sums));
            self.tensors.push(tensor(&format!("{name}.counts"), &[1, counts.len() as u64], counts));
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("text.imatrix.gguf")
    }

    fn import(&self) -> Result<Imported, ImatrixError> {
        write(&self.path(), &self.metadata, &self.tensors);
        let model = MoeModel::open(&self.folder.path().join("model.gguf")).unwrap();
        import(&self.path(), "text", &model)
    }

    fn refusal(&self) -> ImatrixError {
        let error = self.import().unwrap_err();
        assert!(error.to_string().starts_with(self.path().to_str().unwrap()), "{error}");
        error
    }
}

#[test]
fn imatrix_counts_become_a_usage_with_its_origin() {
    let Imported { usage, remarks } = Case::new(&[5.0, 3.0, 2.0, 0.0]).import().unwrap();
    usage.check().unwrap();
    assert_eq!(usage.layers.len(), 2);
    assert_eq!(usage.layers[1].corpora["text"], usage.layers[1].total);
    let sums = ExpertSums { n_tokens: 5, count: vec![5, 3, 2, 0], weight: None, activation: None };
    assert_eq!(usage.layers[1].total, sums);
    assert_eq!((usage.corpora[0].tokens, usage.corpora[0].files[0].path.as_str()), (5, "text.imatrix.gguf"));
    assert_eq!(usage.model.file, "model.gguf");
    assert_eq!((usage.run.llama_cpp, usage.run.ctx_size), (None, 512));
    let from = usage.run.imported_from.unwrap();
    assert_eq!(from, "llama-imatrix, text.imatrix.gguf, 3 chunks of 512 tokens, from a.txt, b.txt");
    assert_eq!(remarks.len(), 1);
}

#[test]
fn imatrix_without_provenance_is_accepted() {
    let mut case = Case::new(&[5.0, 3.0, 2.0, 0.0]);
    case.metadata.remove("imatrix.datasets");
    case.metadata.set("imatrix.chunk_count", "three");
    let run = case.import().unwrap().usage.run;
    assert_eq!(run.imported_from.as_deref(), Some("llama-imatrix, text.imatrix.gguf"));
}

#[test]
fn layers_that_counted_fewer_tokens_are_remarked() {
    let mut case = Case::empty();
    case.layer(0, &[5.0, 3.0, 2.0, 0.0]);
    case.layer(1, &[1.0, 1.0, 0.0, 0.0]);
    let remarks = case.import().unwrap().remarks;
    assert!(remarks[1].contains("layer 1 counts 1 of 5 tokens"), "{remarks:?}");
}

#[test]
fn file_that_is_not_an_imatrix_of_the_model_is_refused() {
    let mut case = Case::new(&[5.0, 3.0, 2.0, 0.0]);
    case.metadata.set("general.type", "model");
    assert!(matches!(case.refusal(), ImatrixError::NotImatrix { found: Some(kind), .. } if kind == "model"));
    case.metadata.remove("general.type");
    assert!(matches!(case.refusal(), ImatrixError::NotImatrix { found: None, .. }));

    let mut case = Case::empty();
    case.tensors.push(tensor("blk.0.attn_q.weight.counts", &[1], &[5.0]));
    assert!(matches!(case.refusal(), ImatrixError::NoCounts { .. }));
    case.layer(0, &[5.0, 3.0, 2.0, 0.0]);
    assert!(matches!(case.refusal(), ImatrixError::MissingLayer { layer: 1, .. }));
    case.layer(1, &[5.0, 3.0, 2.0, 0.0, 0.0]);
    assert!(matches!(case.refusal(), ImatrixError::ExpertCount { found: 5, n_expert: 4, .. }));

    let mut case = Case::new(&[5.0, 3.0, 2.0, 0.0]);
    case.tensors[0] = tensor("blk.0.ffn_gate_exps.weight.in_sum2", &[9, N], &[0.0; 36]);
    assert!(matches!(case.refusal(), ImatrixError::OtherShape { found: 9, wanted: WIDTH, .. }));
}

#[test]
fn damaged_counts_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, -1.0, 2.5, 1e19] {
        let error = Case::new(&[5.0, 3.0, bad, 0.0]).refusal();
        assert!(matches!(error, ImatrixError::Value { expert: 2, .. }), "{bad}: {error}");
    }
    // not two experts a token, and one expert more often than there are tokens
    for counts in [[5.0, 3.0, 1.0, 0.0], [9.0, 1.0, 0.0, 0.0], [9e18, 9e18, 9e18, 0.0]] {
        let error = Case::new(&counts).refusal();
        assert!(matches!(error, ImatrixError::NotWhole { n_expert_used: 2, .. }), "{counts:?}: {error}");
    }
    let mut case = Case::new(&[5.0, 3.0, 2.0, 0.0]);
    case.tensors[3] = tensor("blk.0.ffn_up_exps.weight.counts", &[1, N], &[5.0, 3.0, 0.0, 2.0]);
    assert!(matches!(case.refusal(), ImatrixError::Disagree { .. }));
    let info = TensorInfo::new("blk.0.ffn_up_exps.weight.counts", vec![1, N], TensorType::F16).unwrap();
    case.tensors[3] = (info, vec![0; 8]);
    assert!(matches!(case.refusal(), ImatrixError::Type { found: "F16", .. }));
}

#[test]
fn equal_counts_in_all_layers_are_refused() {
    assert!(matches!(Case::new(&[512.0; 4]).refusal(), ImatrixError::EqualCounts { .. }));
    assert!(matches!(Case::new(&[512.0]).refusal(), ImatrixError::EqualCounts { .. }));
    // In one layer of several it may happen.
    let mut case = Case::empty();
    case.layer(0, &[1.0; 4]);
    case.layer(1, &[2.0, 1.0, 1.0, 0.0]);
    assert!(case.import().is_ok());
}

#[test]
fn counts_rounded_by_f32_add_up_again() {
    // Neighbours in F32 are 4 apart at the first two, 2 at the third.
    let exact = [33_554_435u64, 33_554_433, 20_000_001, 3];
    let sums = Case::new(&exact.map(|count| count as f32)).import().unwrap().usage.layers[0].total.clone();
    assert_eq!(sums.count.iter().sum::<u64>(), 2 * sums.n_tokens);
    assert_eq!(sums.count[3], exact[3]);
    assert_ne!(exact.map(|count| count as f32 as u64).iter().sum::<u64>() % 2, 0);
    for (found, exact) in sums.count.iter().zip(exact) {
        assert!(found.abs_diff(exact) <= 4, "{found} is not {exact}");
    }
    let mut counts = [1 << 24, 7];
    assert_eq!(settle_rounding(&mut counts, 1), Some(()));
    assert_eq!(counts, [(1 << 24) + 1, 7]);
    assert_eq!(settle_rounding(&mut counts, -2), None);
    assert_eq!(settle_rounding(&mut [(1 << 24) - 1, 7], 1), None);
    assert_eq!(settle_rounding(&mut [7], 0), Some(()));
}

#[test]
fn usage_of_either_kind_is_opened_for_its_model() {
    let case = Case::new(&[5.0, 3.0, 2.0, 0.0]);
    let imported = case.import().unwrap().usage;
    let model = MoeModel::open(&case.folder.path().join("model.gguf")).unwrap();
    let open = |path: &Path| crate::usage::open(path, &model);

    let direct = open(&case.path()).unwrap();
    assert_eq!(direct.usage.corpora[0].name, "text.imatrix");
    assert_eq!(direct.usage.layers[0].total, imported.layers[0].total);

    let json = case.folder.path().join("u.json");
    std::fs::write(&json, imported.to_json()).unwrap();
    let read = open(&json).unwrap();
    assert_eq!((read.usage, read.remarks.len()), (imported.clone(), 0));

    let mut other = imported.clone();
    other.model.fingerprint = "sha256:q4".into();
    std::fs::write(&json, other.to_json()).unwrap();
    assert!(open(&json).unwrap().remarks[0].contains("quantisation"));
    other.model.router_hash = "sha256:other".into();
    std::fs::write(&json, other.to_json()).unwrap();
    assert!(open(&json).unwrap_err().to_string().contains("another model"));
    assert!(open(&case.folder.path().join("none.json")).unwrap_err().to_string().contains("cannot read"));
}
