use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use moeslice::gguf::{Metadata, Model, TensorInfo, TensorType, write_model};
use moeslice::moe::KeptExperts;
use moeslice::progress::{Interrupt, OnUpdate, Silent};
use moeslice::slice::{Differences, Options, VerifyError, Where, verify};
use tempfile::TempDir;

use crate::oracle;
use crate::sample::{Extras, Random, Sample, Source};

/// A model and a true cut of it.
struct Pair {
    _folder: TempDir,
    source: Source,
    cut: PathBuf,
    keep: KeptExperts,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut sample = Sample::plain(1, 8, 2);
        // Its 76 bytes of data leave room for padding.
        sample.tensor("rope_freqs.weight", &[19], TensorType::F32);
        sample.layer(1, 8, TensorType::Q8_0, Extras::default());
        sample.key("block_count", 2_u32);
        let source = Source::of(sample.write(&folder.path().join("base.gguf")));
        let keep = KeptExperts::from([(0, vec![0, 3, 4, 5]), (1, vec![1, 2, 6, 7])]);
        let cut = folder.path().join("cut.gguf");
        source.prune(&keep, &cut, &Options::default()).unwrap();
        Self { _folder: folder, source, cut, keep }
    }

    fn verify(&self) -> Result<(), VerifyError> {
        verify(&self.source.model, &Model::open(&self.cut).unwrap(), None, &mut Silent, Interrupt::NEVER)
            .map(drop)
    }

    fn differences(&self) -> Differences {
        match self.verify() {
            Err(VerifyError::Differs(found)) => *found,
            other => panic!("{other:?}"),
        }
    }

    /// Inverts a byte of the cut file, by its position in a tensor.
    fn damage(&self, tensor: &str, byte: u64) {
        let model = Model::open(&self.cut).unwrap();
        flip(&self.cut, model.tensor(tensor).unwrap().file_offset + byte);
    }

    /// Writes the cut file again with other metadata or tensors.
    fn rewrite(&self, change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) {
        let model = Model::open(&self.cut).unwrap();
        let mut metadata = model.metadata().clone();
        let mut tensors = model
            .tensors()
            .iter()
            .map(|tensor| (tensor.info.clone(), oracle::data(&model, tensor)))
            .collect();
        change(&mut metadata, &mut tensors);
        write_model(&mut File::create(&self.cut).unwrap(), &metadata, &tensors).unwrap();
    }
}

fn flip(path: &Path, position: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[!byte[0]], position).unwrap();
}

#[test]
fn verify_accepts_a_true_cut() {
    Pair::new().verify().unwrap();
}

#[test]
fn verify_finds_a_changed_byte_of_an_expert() {
    let pair = Pair::new();
    let slab = 256 * 256 / 32 * 34;
    pair.damage("blk.1.ffn_down_exps.weight", 2 * slab + 17);
    let tensor = "blk.1.ffn_down_exps.weight".to_owned();
    let place = Where::Slab { tensor, expert: 6, pruned_expert: 2, byte: 17 };
    let found = pair.differences();
    assert_eq!((found.first.place, found.others), (place, 0));

    // Twice in one expert, the ends of another, and the last byte of the first.
    pair.damage("blk.1.ffn_down_exps.weight", 2 * slab + 18);
    pair.damage("blk.1.ffn_down_exps.weight", 3 * slab);
    pair.damage("blk.1.ffn_down_exps.weight", 4 * slab - 1);
    pair.damage("blk.1.ffn_down_exps.weight", slab - 1);
    let found = pair.differences();
    let tensor = "blk.1.ffn_down_exps.weight".to_owned();
    let place = Where::Slab { tensor, expert: 1, pruned_expert: 0, byte: slab - 1 };
    assert_eq!((found.first.place.clone(), found.others), (place, 2));
    assert_eq!(
        found.to_string(),
        "tensor blk.1.ffn_down_exps.weight, expert 1 (now 0), byte 69631: differs from the base (and 2 more differences)"
    );
}

#[test]
fn verify_finds_a_changed_byte_of_another_tensor() {
    let pair = Pair::new();
    for byte in [1000, 2000] {
        pair.damage("token_embd.weight", byte);
    }
    let found = pair.differences();
    assert_eq!(found.first.place, Where::Byte { tensor: "token_embd.weight".to_owned(), byte: 1000 });
    assert_eq!(found.others, 0);
}

#[test]
fn verify_finds_padding_other_than_zero() {
    let pair = Pair::new();
    pair.damage("rope_freqs.weight", 4 * 19);
    let found = pair.differences();
    assert_eq!(found.first.place, Where::Padding { tensor: "rope_freqs.weight".to_owned() });
    assert_eq!(found.others, 0);
}

#[test]
fn verify_finds_a_wrong_file_end() {
    // Without its last padding, and with bytes that belong to nothing.
    for change in [-1_i64, -20, 1, 64] {
        let pair = Pair::new();
        // The tensor of 76 bytes goes last.
        pair.rewrite(|_, tensors| {
            let at = tensors.iter().position(|(info, _)| info.name == "rope_freqs.weight").unwrap();
            tensors[at..].rotate_left(1);
        });
        let others = match pair.verify() {
            Err(VerifyError::Differs(found)) => found.others,
            other => panic!("{other:?}"),
        };
        let file = File::options().write(true).open(&pair.cut).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(len.checked_add_signed(change).unwrap()).unwrap();
        assert_eq!(pair.differences().others, others + 1, "{change}");
    }
}

#[test]
fn verify_finds_other_metadata() {
    let key = |key: &str| Where::Metadata { key: key.to_owned() };
    let pair = Pair::new();
    pair.rewrite(|metadata, _| metadata.set("general.name", "another"));
    assert_eq!(pair.differences().first.place, key("general.name"));

    let pair = Pair::new();
    pair.rewrite(|metadata, _| assert!(metadata.remove("general.name")));
    assert_eq!(pair.differences().first.place, key("general.name"));

    let pair = Pair::new();
    pair.rewrite(|metadata, _| metadata.set("general.author", "somebody"));
    let found = pair.differences();
    assert_eq!((found.first.place, found.others), (key("general.author"), 0));

    let pair = Pair::new();
    pair.rewrite(|metadata, _| {
        metadata.remove("general.name");
        metadata.set("general.name", "a random model");
    });
    assert!(matches!(pair.differences().first.place, Where::Metadata { .. }));
}

#[test]
fn verify_finds_a_wrong_id_map() {
    let pair = Pair::new();
    // Expert 4 is claimed to be expert 2: the map alone shows other bytes, the plan another map.
    pair.rewrite(|metadata, _| metadata.set("moeslice.expert_ids.0", vec![0_u32, 2, 3, 5]));
    let found = pair.differences();
    assert!(matches!(found.first.place, Where::Slab { expert: 2, pruned_expert: 1, .. }), "{found}");
    let model = Model::open(&pair.cut).unwrap();
    let error =
        verify(&pair.source.model, &model, Some(&pair.keep), &mut Silent, Interrupt::NEVER).unwrap_err();
    let VerifyError::Differs(found) = error else { panic!("{error}") };
    assert_eq!(found.first.to_string(), "metadata moeslice.expert_ids.0: says 2 for expert 1, not 3");
    assert_eq!(found.others, 0);
}

#[test]
fn verify_of_a_foreign_cut_needs_the_plan() {
    let pair = Pair::new();
    pair.rewrite(|metadata, _| {
        let own: Vec<String> =
            metadata.keys().filter(|key| key.starts_with("moeslice.")).map(str::to_owned).collect();
        assert!(own.iter().all(|key| metadata.remove(key)));
    });
    assert!(matches!(pair.verify(), Err(VerifyError::NoIdMap { .. })));
    let model = Model::open(&pair.cut).unwrap();
    verify(&pair.source.model, &model, Some(&pair.keep), &mut Silent, Interrupt::NEVER).unwrap();
    let other = KeptExperts::from([(0, vec![0, 3, 4, 6]), (1, vec![1, 2, 6, 7])]);
    let error = verify(&pair.source.model, &model, Some(&other), &mut Silent, Interrupt::NEVER).unwrap_err();
    // One expert in each of router, gate, up and down.
    let VerifyError::Differs(found) = error else { panic!("{error}") };
    assert_eq!(found.others, 3);
}

#[test]
fn verify_finds_missing_added_and_moved_tensors() {
    let tensor = |tensor: &str| Where::Tensor { tensor: tensor.to_owned() };
    let pair = Pair::new();
    pair.rewrite(|_, tensors| drop(tensors.remove(0)));
    let found = pair.differences();
    assert_eq!((found.first.place, found.others), (tensor("token_embd.weight"), 0));

    let pair = Pair::new();
    pair.rewrite(|_, tensors| {
        tensors.push((TensorInfo::new("extra.weight", vec![4], TensorType::I8).unwrap(), vec![0; 4]));
    });
    let found = pair.differences();
    assert_eq!((found.first.place, found.others), (tensor("extra.weight"), 0));

    let pair = Pair::new();
    pair.rewrite(|_, tensors| tensors.swap(0, 1));
    assert!(matches!(pair.differences().first.place, Where::Tensor { .. }));

    let pair = Pair::new();
    pair.rewrite(|_, tensors| tensors[0].0.dims = vec![128, 80]);
    let found = pair.differences();
    assert_eq!((found.first.place, found.others), (tensor("token_embd.weight"), 0));
}

#[test]
fn verify_finds_another_base_model() {
    let pair = Pair::new();
    let folder = tempfile::tempdir().unwrap();
    let mut other = Sample::plain(2, 8, 2);
    other.metadata.set("general.name", "another");
    let other = Source::of(other.write(&folder.path().join("other.gguf")));
    let keep = other.random_keep(4, &mut Random(1));
    other.prune(&keep, &folder.path().join("cut.gguf"), &Options::default()).unwrap();
    let cut = Model::open(&folder.path().join("cut.gguf")).unwrap();
    let error = verify(&pair.source.model, &cut, None, &mut Silent, Interrupt::NEVER).unwrap_err();
    assert!(matches!(error, VerifyError::Differs(_)), "{error}");

    let few = Source::of(Sample::plain(2, 5, 2).write(&folder.path().join("few.gguf")));
    let error = verify(&few.model, &Model::open(&pair.cut).unwrap(), None, &mut Silent, Interrupt::NEVER)
        .unwrap_err();
    assert!(matches!(error, VerifyError::Origin { layer: 0, id: 3, .. }), "{error}");
}

#[test]
fn verify_finds_a_changed_hash_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::new("deepseek4", 1, 10, 3, 5);
    sample.key("hash_layer_count", 1_u32);
    sample.hash_layer(0, 3);
    let source = Source::of(sample.write(&folder.path().join("base.gguf")));
    let keep = source.random_keep(6, &mut Random(8));
    let cut = folder.path().join("cut.gguf");
    source.prune(&keep, &cut, &Options::default()).unwrap();
    let model = Model::open(&cut).unwrap();
    let table = model.tensor("blk.0.ffn_gate_tid2eid.weight").unwrap().file_offset;
    let file = File::options().write(true).open(&cut).unwrap();
    file.write_all_at(&[9], table + 4 * 3 * 11).unwrap();
    let error = verify(&source.model, &model, Some(&keep), &mut Silent, Interrupt::NEVER).unwrap_err();
    let VerifyError::Differs(found) = error else { panic!("{error}") };
    assert!(matches!(found.first.place, Where::Token { token: 11, .. }), "{found}");
    assert_eq!(found.others, 0);
}

#[test]
fn verify_stops_when_interrupted() {
    let pair = Pair::new();
    static STOP: AtomicBool = AtomicBool::new(false);
    let pruned = Model::open(&pair.cut).unwrap();
    let result = verify(
        &pair.source.model,
        &pruned,
        None,
        &mut OnUpdate(|done, total| {
            assert!(done < total / 2, "{done} of {total}");
            STOP.store(done > total / 3, Ordering::Relaxed);
        }),
        Interrupt::when(&STOP),
    );
    assert!(matches!(result, Err(VerifyError::Interrupted)), "{result:?}");
}
