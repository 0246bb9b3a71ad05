//! Every architecture of the linked llama.cpp: cut right, and proven so, or refused with the reason.
#![cfg(feature = "llama")]

mod proof;
#[path = "../support/mod.rs"]
mod support;

use support::recipe::Recipe;
use support::tiny::TinyModel;

#[test]
#[ignore]
fn probe() {
    let Some(task) = support::isolated::task() else { return };
    let tiny = TinyModel::of(&Recipe::of(&task)).unwrap_or_else(|e| panic!("{e}"));
    let subject = proof::Subject::new(tiny, Vec::new());
    proof::counts(&subject);
    proof::cuts(&subject, proof::Tolerance { same: if task == "deepseek4" { 1e-4 } else { 1e-5 }, top1: true });
    println!("OK");
}

#[test]
#[ignore]
fn probe_all() {
    for family in moeslice::moe::families() {
        match support::isolated::run("probe", family.architecture, &[]) {
            Ok(out) => println!("{}: {}", family.architecture, out.lines().filter(|l| l.contains("mask") || l.contains("OK")).collect::<Vec<_>>().join(" / ")),
            Err(e) => println!("{}: FAIL {}", family.architecture, e.lines().filter(|l| l.contains("panicked") || l.contains("layer") || l.contains("off by") || l.contains("gave up") || l.contains("llama.cpp said") || l.contains("signal") || l.contains("assert") || l.contains("gguf")).collect::<Vec<_>>().join(" / ")),
        }
    }
}
