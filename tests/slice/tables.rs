//! Tables of expert ids, compared after one cut and after two.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use moeslice::gguf::Model;
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{Options, VerifyError, Where, verify};

use crate::sample::{Random, Sample, Source};

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

/// A model of one hash layer with 10 experts, 3 for a token.
fn with_table(folder: &Path, change: impl FnOnce(&mut [u8])) -> Source {
    let mut sample = Sample::new("deepseek4", 1, 10, 3, 5);
    sample.key("hash_layer_count", 1_u32);
    sample.hash_layer(0, 3);
    change(&mut sample.tensors.last_mut().unwrap().1);
    Source::of(sample.write(&folder.join("base.gguf")))
}

#[test]
fn a_row_of_a_table_that_was_made_equal_is_found_through_two_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let source = with_table(folder.path(), |_| {});
    let (first, second) = (folder.path().join("first.gguf"), folder.path().join("second.gguf"));
    source.prune(&source.random_keep(7, &mut Random(8)), &first, &Options::default()).unwrap();
    let middle = Source::open(&first);
    middle.prune(&middle.random_keep(5, &mut Random(9)), &second, &Options::default()).unwrap();
    let model = Model::open(&second).unwrap();
    let verified = verify(&source.model, &model, None, &mut Silent, Interrupt::NEVER).unwrap();
    assert_eq!(verified.unchecked.len(), 2, "{:?}", verified.unchecked);
    assert!(verified.unchecked[1].starts_with("1 tables of expert ids"), "{:?}", verified.unchecked);
    // Held against what it was cut from, nothing is left open.
    let verified = verify(&middle.model, &model, None, &mut Silent, Interrupt::NEVER).unwrap();
    assert_eq!(verified.unchecked, Vec::<String>::new());

    let table = model.tensor("blk.0.ffn_gate_tid2eid.weight").unwrap().file_offset;
    let file = File::options().read(true).write(true).open(&second).unwrap();
    let row = table + 4 * 3 * 11;
    let mut ids = [0; 12];
    file.read_exact_at(&mut ids, row).unwrap();
    ids.copy_within(0..4, 4);
    file.write_all_at(&ids, row).unwrap();
    let error = verify(&source.model, &model, None, &mut Silent, Interrupt::NEVER).unwrap_err();
    let VerifyError::Differs(found) = error else { panic!("{error}") };
    assert!(matches!(found.first.place, Where::Token { token: 11, .. }), "{found}");
}

#[test]
fn an_odd_table_of_a_model_that_keeps_all_experts_is_copied_and_true() {
    let folder = tempfile::tempdir().unwrap();
    // A token that goes to one expert three times, and one that goes to none that there is.
    let source = with_table(folder.path(), |table| {
        table[..12].copy_from_slice(&[[1_u8, 0, 0, 0]; 3].concat());
        table[12..24].copy_from_slice(&[[0xff_u8; 4]; 3].concat());
    });
    let (first, second) = (folder.path().join("first.gguf"), folder.path().join("second.gguf"));
    source.prune(&source.keep_all(), &first, &Options::default()).unwrap();
    let middle = Source::open(&first);
    middle.prune(&middle.keep_all(), &second, &Options::default()).unwrap();
    for cut in [&first, &second] {
        verify(&source.model, &Model::open(cut).unwrap(), None, &mut Silent, Interrupt::NEVER).unwrap();
    }
}
