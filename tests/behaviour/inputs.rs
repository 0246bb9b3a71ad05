//! Models that cannot be used, each refused with its reason and exit code 3.

use crate::support::{demo, folder, moeslice, refuses, succeeds, variant};
use moeslice::gguf::TensorInfo;
use std::path::Path;

fn inspect_refuses(path: &Path, words: &[&str]) {
    refuses(moeslice().arg("inspect").arg(path), 3, words);
}

fn written(bytes: &[u8], words: &[&str]) {
    let folder = folder();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    inspect_refuses(&path, words);
}

#[test]
fn file_that_is_not_a_gguf_is_told_what_it_is() {
    written(b"", &["model.gguf"]);
    written(b"GGU", &["model.gguf"]);
    written(b"<!DOCTYPE html><html><body>404</body></html>", &["HTML"]);
    written(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", &["Git LFS"]);
    written(
        b"GGUF\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        &["big-endian"],
    );
    written(
        b"GGUF\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        &["version 1"],
    );
    written(
        b"GGUF\x63\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        &["version 99"],
    );
}

#[test]
fn missing_model_is_named() {
    inspect_refuses(Path::new("no/such/model.gguf"), &["no/such/model.gguf", "No such file"]);
}

#[test]
fn truncated_model_names_the_first_tensor_beyond_its_end() {
    let folder = folder();
    let path = folder.path().join("cut.gguf");
    let whole = std::fs::read(demo()).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    inspect_refuses(&path, &["cut.gguf", "blk."]);
}

#[test]
fn dense_model_is_refused_as_not_moe() {
    let folder = folder();
    let path = folder.path().join("dense.gguf");
    variant(&path, |metadata, tensors| {
        metadata.remove("qwen3moe.expert_count");
        tensors.retain(|(info, _)| !info.name.contains("_exps") && !info.name.contains("gate_inp"));
    });
    inspect_refuses(&path, &["not a Mixture-of-Experts model"]);
    refuses(
        moeslice().args(["prune", "--plan", "p.json", "-o", "o.gguf", "-m"]).arg(&path),
        3,
        &["not a Mixture-of-Experts model"],
    );
}

#[test]
fn disagreeing_metadata_and_tensors_are_refused_with_both_counts() {
    let folder = folder();
    let path = folder.path().join("mixed.gguf");
    variant(&path, |metadata, _| metadata.set("qwen3moe.expert_count", 24_u32));
    inspect_refuses(&path, &["24", "32", "ffn_"]);
}

#[test]
fn unknown_tensor_of_expert_size_is_refused_by_name() {
    let folder = folder();
    let path = folder.path().join("new.gguf");
    variant(&path, |_, tensors| {
        let info =
            TensorInfo::new("blk.2.ffn_novel.weight", vec![4, 32], moeslice::gguf::TensorType::F32).unwrap();
        tensors.push((info, vec![0; 512]));
    });
    inspect_refuses(&path, &["blk.2.ffn_novel.weight"]);
}

#[test]
fn inspect_shows_what_the_demo_model_holds() {
    let text = succeeds(moeslice().arg("inspect").arg(demo()));
    for part in ["qwen3moe", "32 a layer, 4 used", "softmax", "4-32", "ffn_down_exps.weight", "8704"] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(moeslice().arg("inspect").arg(demo()).arg("--json"))).unwrap();
    assert_eq!(json["n_expert"], 32);
    assert_eq!(json["rows"].as_array().unwrap().len(), 4);
    assert_eq!(json["possible_k"].as_array().unwrap().len(), 29);
}

#[test]
fn wrong_arguments_exit_with_2() {
    moeslice().assert().code(2);
    moeslice().arg("no-such-command").assert().code(2);
    moeslice().args(["prune", "-m", "m.gguf", "-o", "o.gguf"]).assert().code(2);
    moeslice().arg("--help").assert().code(0);
    moeslice().arg("--version").assert().code(0);
}

#[test]
fn flag_of_another_command_is_not_taken_for_one_of_llama_cpp() {
    let plan = |flag: &str| {
        let output = moeslice().args(["plan", "-m", "m.gguf", flag]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(plan("--usage").contains("see moeslice plan --help"), "{}", plan("--usage"));
    assert!(plan("--top-k").contains("a flag of llama.cpp's tools"), "{}", plan("--top-k"));
}

#[test]
fn wrong_arguments_are_told_in_one_line() {
    refuses(
        moeslice().args(["prune", "-m", "m.gguf", "-o", "o.gguf"]),
        2,
        &["--usage", "--plan", "see moeslice prune --help"],
    );
    refuses(moeslice().args(["plan", "u.json", "-m", "m.gguf", "--keep", "-1"]), 2, &["-1", "--keep"]);
    refuses(moeslice().args(["-q", "plan", "--no-such"]), 2, &["--no-such", "see moeslice plan --help"]);
    refuses(moeslice().args(["inspekt", "plan"]), 2, &["inspekt", "inspect", "see moeslice --help"]);
}

#[test]
fn no_arguments_show_the_commands_on_stderr() {
    let output = moeslice().assert().code(2).get_output().clone();
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.lines().any(|line| line.trim().starts_with("inspect ")), "{text}");
}

#[test]
fn closed_pipe_exits_with_success() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_moeslice"))
        .args(["inspect", "--json"])
        .arg(demo())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
