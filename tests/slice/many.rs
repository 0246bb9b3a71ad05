//! Very many tensors, keys and ids: no step may take the square of their number.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use moeslice::gguf::{Layout, Metadata, Model, TensorInfo, TensorType};
use moeslice::progress::{Interrupt, Silent};
use moeslice::slice::{Options, verify};

use crate::sample::{Random, Sample, Source};

/// A model of a few experts and `n` more tensors of one byte, in a file of holes.
fn model(path: &Path, n: u32) -> Source {
    let sample = Sample::plain(1, 8, 2);
    let mut metadata: Metadata = sample.metadata.clone();
    // As many keys as a hundredth of the tensors.
    for key in 0..n / 100 {
        metadata.set(&format!("other.key.{key}"), key);
    }
    let mut tensors: Vec<TensorInfo> = sample.tensors.iter().map(|(info, _)| info.clone()).collect();
    tensors.extend((0..n).map(|i| TensorInfo::new(format!("x.{i}"), vec![1], TensorType::I8).unwrap()));
    let layout = Layout::new(&metadata, &tensors, 32, 3).unwrap();
    let file = File::create(path).unwrap();
    file.write_all_at(layout.header(), 0).unwrap();
    file.set_len(layout.file_bytes()).unwrap();
    for ((_, data), info) in sample.tensors.iter().zip(layout.tensors()) {
        file.write_all_at(data, layout.data_offset() + info.offset).unwrap();
    }
    Source::of(Model::open(path).unwrap())
}

fn cut_and_verify(n: u32) {
    let folder = tempfile::tempdir().unwrap();
    let source = model(&folder.path().join("base.gguf"), n);
    assert!(source.model.tensors().len() > n as usize);
    let keep = source.random_keep(5, &mut Random(1));
    let output = folder.path().join("cut.gguf");
    let written = source.prune(&keep, &output, &Options::default()).unwrap();
    assert_eq!(written.verified.unwrap().tensors, source.model.tensors().len() as u64);
    let pruned = Model::open(&output).unwrap();
    verify(&source.model, &pruned, None, &mut Silent, Interrupt::NEVER).unwrap();
}

/// A pass over the square of these would take hours, and the test with it.
#[test]
#[ignore = "a million tensors take a while"]
fn a_million_tensors_are_cut_and_verified() {
    cut_and_verify(1_000_000);
}

#[test]
fn ten_thousand_tensors_are_cut_and_verified() {
    cut_and_verify(10_000);
}
