//! Comparing a pruned model with the one that it was cut from.

use crate::support::{demo, folder, moeslice, refuses, succeeds, write_usage};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder with a cut of the demo model, and a command that verifies a file in it.
fn with_cut() -> TempDir {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), |_, expert| u64::from(expert) + 1);
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--usage").arg(at("u.json"));
    succeeds(prune.args(["--keep", "16", "-o"]).arg(at("cut.gguf")));
    folder
}

fn verify(cut: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command.arg("verify").arg(demo()).arg(cut);
    command
}

#[test]
fn verify_names_the_first_difference_and_counts_the_rest() {
    let folder = with_cut();
    let (cut, bad) = (folder.path().join("cut.gguf"), folder.path().join("bad.gguf"));
    let whole: Value = serde_json::from_str(&succeeds(verify(&cut).arg("--json"))).unwrap();
    assert_eq!((&whole["true_cut"], whole["keep"]["3"][0].as_u64()), (&json!(true), Some(16)));

    // The last byte of the last expert of two tensors.
    let model = moeslice::gguf::Model::open(&cut).unwrap();
    let mut bytes = fs::read(&cut).unwrap();
    for layer in [1, 3] {
        let tensor = model.tensor(&format!("blk.{layer}.ffn_up_exps.weight")).unwrap();
        let end = tensor.file_offset + tensor.info.bytes();
        bytes[usize::try_from(end).unwrap() - 1] ^= 1;
    }
    fs::write(&bad, bytes).unwrap();
    let words = ["blk.1.ffn_up_exps.weight, expert 31 (now 15), byte", "and 1 more difference"];
    refuses(&mut verify(&bad), 3, &words);
    let output = verify(&bad).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tensor = model.tensor("blk.1.ffn_up_exps.weight").unwrap();
    assert_eq!(
        found,
        json!({
            "true_cut": false,
            "differences": 2,
            "first": {
                "kind": "slab",
                "tensor": "blk.1.ffn_up_exps.weight",
                "expert": 31,
                "pruned_expert": 15,
                "byte": tensor.info.bytes() / 16 - 1,
                "what": "differs from the base",
            },
        })
    );
}

#[test]
fn verify_refuses_a_model_that_was_not_cut() {
    refuses(&mut verify(&demo()), 3, &["no id map", "not cut by moeslice"]);
}
