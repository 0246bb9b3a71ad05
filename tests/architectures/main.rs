//! Every architecture of the linked llama.cpp: cut right, and proven so, or refused with the reason.
//!
//! llama.cpp ends the process on some inputs, so each model is made and run in a child process of this binary: the test
//! `child`, which the environment tells what to do.
#![cfg(feature = "llama")]

mod counts;
mod dropped;
mod passes;
mod proof;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod variants;
mod vulkan;

use proof::{Subject, Tolerance};
use support::isolated;
use support::recipe::Recipe;
use support::tiny::TinyModel;

/// Proves the plain model of an architecture, in a child process.
fn prove(architecture: &str) {
    let out = isolated::run("child", &format!("prove {architecture}"), &[]).unwrap_or_else(|e| panic!("{e}"));
    println!("{out}");
}

#[test]
#[ignore = "the child process of the other tests"]
fn child() {
    // With --include-ignored it is started by hand, and has nothing to do.
    let Some(task) = isolated::task() else { return };
    let (kind, name) = task.split_once(' ').expect("a kind and a name");
    match kind {
        "prove" => proof::all(&Subject::new(tiny(&Recipe::of(name)), Vec::new()), Tolerance::of(name)),
        "cut" => proof::cut_only(&tiny(&Recipe::of(name))),
        "variant" => variants::child(name),
        "vulkan" => vulkan::child(name),
        "dense" => {
            let tiny = tiny(&Recipe::of(name));
            let experts = tiny.tensors.iter().find(|(info, _)| {
                ["_exps", "exp_probs", "gate_inp"].iter().any(|part| info.name.contains(part))
            });
            assert_eq!(experts.map(|(info, _)| &info.name), None, "{name} has experts");
        }
        other => panic!("unknown task {other}"),
    }
}

fn tiny(recipe: &Recipe) -> TinyModel {
    TinyModel::of(recipe).unwrap_or_else(|e| panic!("{}: {e}", recipe.architecture))
}

/// dflash is fed with another model's features: its file can be cut, and loads, and that is all that can be tried.
#[test]
fn draft_model_is_cut_and_loads() {
    isolated::run("child", "cut dflash", &[]).unwrap_or_else(|e| panic!("{e}"));
}
