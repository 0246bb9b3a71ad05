use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use moeslice::gguf::{Metadata, Model, TensorInfo, TensorType, write_model};
use moeslice::moe::KeptExperts;
use moeslice::progress::{Interrupt, OnUpdate, Silent};
use moeslice::slice::{Difference, Differences, Options, VerifyError, Where, verify};
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
fn a_cut_without_its_id_map_or_its_fingerprint_is_no_true_cut() {
    let verify_by_plan = |pair: &Pair| {
        let model = Model::open(&pair.cut).unwrap();
        match verify(&pair.source.model, &model, Some(&pair.keep), &mut Silent, Interrupt::NEVER) {
            Err(VerifyError::Differs(found)) => *found,
            other => panic!("{other:?}"),
        }
    };
    let key = |key: &str| Where::Metadata { key: key.to_owned() };
    let strip = |pair: &Pair, start: &str| {
        pair.rewrite(|metadata, _| {
            let own: Vec<String> =
                metadata.keys().filter(|key| key.starts_with(start)).map(str::to_owned).collect();
            assert!(!own.is_empty() && own.iter().all(|key| metadata.remove(key)), "{start}");
        });
    };
    // All of it, and each key alone; a plan is no substitute.
    let pair = Pair::new();
    strip(&pair, "moeslice.");
    assert!(matches!(pair.verify(), Err(VerifyError::NoIdMap { .. })));
    assert_eq!(verify_by_plan(&pair).first.what, "is missing");
    let pair = Pair::new();
    strip(&pair, "moeslice.expert_ids.");
    assert!(matches!(pair.verify(), Err(VerifyError::NoIdMap { .. })));
    let found = verify_by_plan(&pair);
    assert_eq!((found.first.place, found.others), (key("moeslice.expert_ids.0"), 1));
    let pair = Pair::new();
    let keys: Vec<String> = Model::open(&pair.cut).unwrap().metadata().keys().map(str::to_owned).collect();
    for stripped in keys.iter().filter(|key| key.starts_with("moeslice.")) {
        let pair = Pair::new();
        strip(&pair, stripped);
        assert!(pair.verify().is_err(), "{stripped}");
        if !stripped.contains("expert_") && !stripped.contains("router_") {
            assert_eq!(
                pair.differences().first,
                Difference { place: key(stripped), what: "is missing".into() }
            );
        }
    }
}

#[test]
fn unknown_keys_of_moeslice_are_named() {
    let pair = Pair::new();
    pair.rewrite(|metadata, _| metadata.set("moeslice.later", 1_u32));
    let found = pair.differences();
    let text = found.to_string();
    assert!(text.starts_with("metadata moeslice.later: is not a key that moeslice"), "{text}");
    assert_eq!(found.others, 0);
}

#[test]
fn header_padding_and_version_are_compared() {
    let pair = Pair::new();
    let header = Model::open(&pair.cut).unwrap().shards()[0].header.clone();
    assert!(header.header_end < header.data_offset, "the header of the sample has padding");
    for position in [header.header_end, header.data_offset - 1] {
        flip(&pair.cut, position);
        let found = pair.differences();
        assert_eq!(found.first.what, "has a header whose padding is not zero");
        flip(&pair.cut, position);
    }
    pair.verify().unwrap();
    let file = File::options().write(true).open(&pair.cut).unwrap();
    file.write_all_at(&[2], 4).unwrap();
    assert_eq!(pair.differences().first.what, "is of GGUF version 2, not 3");
}

#[test]
fn what_the_cut_says_of_the_routers_of_its_source_is_compared() {
    let pair = Pair::new();
    pair.rewrite(|metadata, _| metadata.set("moeslice.source_router_hash", "sha256:00"));
    let found = pair.differences();
    assert_eq!(found.first.place, Where::Metadata { key: "moeslice.source_router_hash".into() });
    let pair = Pair::new();
    pair.rewrite(|metadata, _| {
        let values = metadata.get("moeslice.router_sketch.values").and_then(|value| value.as_array());
        let Some(values) = values else {
            // The random routers of the sample hold what is not a number now and then.
            return metadata.set("moeslice.router_sketch.values", vec![1_f32]);
        };
        let mut values: Vec<f32> = values.iter().map(|value| value.as_f64().unwrap() as f32).collect();
        values[3] += 1.0;
        metadata.set("moeslice.router_sketch.values", values);
    });
    assert!(pair.differences().to_string().contains("moeslice.router_sketch.values"));
}

#[test]
fn swapped_arguments_are_recognised() {
    let pair = Pair::new();
    let cut = Model::open(&pair.cut).unwrap();
    let error = verify(&cut, &pair.source.model, None, &mut Silent, Interrupt::NEVER).unwrap_err();
    assert!(matches!(error, VerifyError::Swapped { what: "is a cut of", .. }), "{error}");
    pair.rewrite(|metadata, _| assert!(metadata.remove("moeslice.source_fingerprint")));
    let cut = Model::open(&pair.cut).unwrap();
    let error = verify(&cut, &pair.source.model, None, &mut Silent, Interrupt::NEVER).unwrap_err();
    assert!(matches!(error, VerifyError::Swapped { what: "has fewer experts than", .. }), "{error}");
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
