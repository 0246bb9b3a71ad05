//! Measurements and scores against computations that have nothing to do with the product's own.
#![cfg(feature = "llama")]

mod closed_loop;
mod noise;
mod scores;
#[path = "../support/mod.rs"]
mod support;

use moeslice::llama::{Backend, Model, Placement, Token};
use moeslice::moe::MoeModel;
use moeslice::progress::{Interrupt, Silent};
use std::path::{Path, PathBuf};
use support::random::Random;

/// The demo model.
fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf")
}

/// A model on the processor.
fn load(path: &Path) -> (MoeModel, Model) {
    let moe = MoeModel::open(path).expect("a model");
    let backend = Backend::start().expect("llama.cpp");
    let cpu = Placement { devices: Some(Vec::new()), ..Placement::default() };
    let loaded = Model::load(backend, path, &cpu, &mut Silent, Interrupt::NEVER).expect("a model that loads");
    (moe, loaded)
}

/// Windows of tokens that say nothing.
fn windows(model: &Model, count: usize, length: usize) -> Vec<Vec<Token>> {
    let n_vocab = model.vocab().len();
    let mut random = Random::of(7, "windows");
    (0..count).map(|_| (0..length).map(|_| random.below(n_vocab) as Token).collect()).collect()
}
