use super::*;
use crate::gguf::Metadata;
use crate::moe::test_model::{TestModel, f32_tensor as tensor, write_file as write};
use crate::moe::{KeptExperts, Provenance, ShardPolicy};
use crate::progress::Silent;
use crate::slice::{Cut, Options, prune};
use tempfile::TempDir;

const N: u64 = TestModel::N;
const WIDTH: u64 = TestModel::WIDTH;

/// A model of two layers of [`N`] experts, the cut of it that keeps experts 1 and 3, then 0 and 2, and its imatrix.
struct Case {
    folder: TempDir,
    metadata: Metadata,
    tensors: Vec<(TensorInfo, Vec<u8>)>,
}

impl Case {
    fn new() -> Case {
        let folder = TempDir::new().unwrap();
        TestModel::small().write(&folder.path().join("base.gguf"));
        let mut metadata = Metadata::new();
        metadata.set("general.type", "imatrix");
        metadata.set("imatrix.chunk_count", 5u32);
        let mut tensors = vec![];
        for layer in 0..2 {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            tensors.push(tensor(&(name("ffn_gate_inp") + ".in_sum2"), &[WIDTH], &[7.0, 8.0, 9.0]));
            for (part, n_in) in [("ffn_gate_exps", WIDTH), ("ffn_up_exps", WIDTH), ("ffn_down_exps", 2)] {
                let sums: Vec<f32> =
                    (0..n_in * N).map(|at| (at / n_in) as f32 + 10.0 * layer as f32).collect();
                tensors.push(tensor(&(name(part) + ".in_sum2"), &[n_in, N], &sums));
                tensors.push(tensor(&(name(part) + ".in_sum"), &[n_in, N], &sums));
                tensors.push(tensor(&(name(part) + ".stats"), &[2], &[1.0, 2.0]));
                tensors.push(tensor(&(name(part) + ".counts"), &[1, N], &[0.0, 1.0, 2.0, 3.0]));
            }
        }
        let case = Case { folder, metadata, tensors };
        case.cut("base.gguf", "cut.gguf", [(0, vec![1, 3]), (1, vec![0, 2])].into());
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn cut(&self, from: &str, to: &str, keep: KeptExperts) {
        let model = MoeModel::open(&self.path(from)).unwrap();
        let provenance: Provenance = model.provenance("frequency", "2", vec![]);
        let cut = Cut { model: &model.file, experts: &model.experts, keep: &keep, provenance };
        let options = Options { shards: ShardPolicy::Keep, ..Options::default() };
        prune(&cut, &self.path(to), &options, &mut Silent).unwrap();
    }

    fn slice(&self, model: &str) -> Result<SlicedImatrix, ImatrixSliceError> {
        write(&self.path("im.gguf"), &self.metadata, &self.tensors);
        slice_imatrix(&self.path("im.gguf"), &MoeModel::open(&self.path(model)).unwrap())
    }

    /// The values of a tensor of the sliced imatrix, and its dimensions.
    fn values(&self, sliced: &SlicedImatrix, name: &str) -> (Vec<u64>, Vec<f32>) {
        std::fs::write(self.path("sliced.gguf"), &sliced.bytes).unwrap();
        let model = Model::open(&self.path("sliced.gguf")).unwrap();
        let tensor = model.tensor(name).unwrap();
        let data = read(&model, tensor).unwrap();
        let (values, _) = data.as_chunks::<4>();
        (tensor.info.dims.clone(), values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn refusal(&self, model: &str) -> String {
        self.slice(model).unwrap_err().to_string()
    }
}

#[test]
fn imatrix_keeps_the_rows_of_the_experts_that_stayed() {
    let case = Case::new();
    let sliced = case.slice("cut.gguf").unwrap();
    assert_eq!((sliced.sliced, sliced.remarks.len()), (6, 0));
    let values = |name: &str| case.values(&sliced, name);
    assert_eq!(values("blk.0.ffn_up_exps.weight.in_sum2"), (vec![3, 2], vec![1.0, 1.0, 1.0, 3.0, 3.0, 3.0]));
    assert_eq!(values("blk.1.ffn_down_exps.weight.in_sum2"), (vec![2, 2], vec![10.0, 10.0, 12.0, 12.0]));
    assert_eq!(values("blk.0.ffn_gate_exps.weight.counts"), (vec![1, 2], vec![1.0, 3.0]));
    assert_eq!(values("blk.1.ffn_gate_inp.weight.in_sum2"), (vec![3], vec![7.0, 8.0, 9.0]), "no expert axis");
    assert_eq!(values("blk.0.ffn_down_exps.weight.in_sum"), (vec![2, 2], vec![1.0, 1.0, 3.0, 3.0]));
    let model = Model::open(&case.path("sliced.gguf")).unwrap();
    assert_eq!(model.tensor("blk.0.ffn_down_exps.weight.stats"), None, "true of all experts together");
    assert_eq!(model.metadata().get("imatrix.chunk_count").and_then(|value| value.as_u64()), Some(5));
}

#[test]
fn model_that_was_cut_twice_takes_the_imatrix_of_the_original() {
    let case = Case::new();
    // Layer 1 of the first cut has the originals 0 and 2; nothing smaller than 2 of 4 can be kept, so all stay.
    case.cut("cut.gguf", "again.gguf", [(0, vec![0, 1]), (1, vec![0, 1])].into());
    let sliced = case.slice("again.gguf").unwrap();
    assert_eq!(case.values(&sliced, "blk.1.ffn_up_exps.weight.counts").1, [0.0, 2.0]);
}

#[test]
fn model_that_was_not_cut_is_refused() {
    assert!(Case::new().refusal("base.gguf").contains("no experts were cut out of it"));
}

#[test]
fn file_of_another_kind_is_refused() {
    let mut case = Case::new();
    case.metadata.set("general.type", "model");
    assert!(case.refusal("cut.gguf").contains("general.type is \"model\""));
    case.tensors.retain(|(info, _)| !info.name.contains("_exps"));
    case.metadata.set("general.type", "imatrix");
    assert!(case.refusal("cut.gguf").contains("nothing about the experts"));
}

#[test]
fn imatrix_of_another_model_is_refused() {
    let mut case = Case::new();
    case.tensors[1] = tensor("blk.0.ffn_gate_exps.weight.in_sum2", &[WIDTH, 2], &[1.0; 6]);
    let message = case.refusal("cut.gguf");
    assert!(
        message.contains("blk.0.ffn_gate_exps.weight.in_sum2 has 2 rows of 3")
            && message.contains("4 experts"),
        "{message}"
    );
    let mut case = Case::new();
    case.tensors[1] = tensor("blk.0.ffn_gate_exps.weight.in_sum2", &[5, N], &[1.0; 20]);
    assert!(case.refusal("cut.gguf").contains("rows of 5"));
}

#[test]
fn matrices_without_importance_are_remarked() {
    let mut case = Case::new();
    case.tensors.retain(|(info, _)| !info.name.starts_with("blk.1.ffn_down"));
    let sliced = case.slice("cut.gguf").unwrap();
    assert!(sliced.remarks[0].contains("nothing about 1 of 6 matrices"), "{:?}", sliced.remarks);
}

#[test]
fn blocks_that_the_model_no_longer_has_are_left_out() {
    let mut case = Case::new();
    case.tensors.push(tensor("blk.2.attn_q.weight.in_sum2", &[WIDTH], &[1.0; 3]));
    let sliced = case.slice("cut.gguf").unwrap();
    assert!(sliced.remarks[0].contains("blk.2.attn_q.weight"), "{:?}", sliced.remarks);
}
