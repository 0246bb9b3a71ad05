//! Profile, plan, cut and verify in one process.

use crate::support::{demo, folder, json, moeslice, refuses, repository, succeeds, variant};
use std::fs;
use std::path::Path;

fn run(model: &Path, text: &Path, keep: &str, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command.args(["run", "-dev", "none", "-t", "1", "-c", "128", "-m"]).arg(model).arg("-f").arg(text);
    command.args(["--keep", keep, "-o"]).arg(output);
    command
}

#[test]
fn run_leaves_a_usage_file_and_a_model_that_runs() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("text")).unwrap();
    fs::copy(repository("corpora/dev/expression.py"), at("text/code.py")).unwrap();
    let table = succeeds(&mut run(&demo(), &at("text"), "75%", &at("model-24e.gguf")));
    for part in ["32 → 24 a layer", "routing kept", "in layer", "compared with the source"] {
        assert!(table.contains(part), "{part:?} is missing in:\n{table}");
    }
    let usage = json(&at("model-24e.usage.json"));
    assert_eq!(usage["layers"].as_array().unwrap().len(), 4);

    // The cut model runs, and its own usage is that of 24 experts.
    let mut again = moeslice();
    again.args(["profile", "-dev", "none", "-t", "1", "-c", "128", "-m"]).arg(at("model-24e.gguf"));
    succeeds(again.arg("-f").arg(at("text")).arg("-o").arg(at("again.json")));
    assert_eq!(json(&at("again.json"))["layers"][3]["total"]["count"].as_array().unwrap().len(), 24);

    // prune makes the same file from the usage that run left.
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--usage").arg(at("model-24e.usage.json"));
    succeeds(prune.args(["--keep", "75%", "-o"]).arg(at("pruned.gguf")));
    assert!(fs::read(at("pruned.gguf")).unwrap() == fs::read(at("model-24e.gguf")).unwrap());
}

#[test]
fn any_shard_stands_for_the_whole_model() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), fs::read_to_string(repository("corpora/dev/digraph.py")).unwrap()).unwrap();
    succeeds(&mut run(&demo(), &at("t.txt"), "24", &at("whole.gguf")));
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--usage").arg(at("whole.usage.json"));
    succeeds(prune.args(["--keep", "24", "--shards", "1MB", "-o"]).arg(at("part.gguf")));
    let shards = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
    let second = shards.into_iter().find(|path| path.to_string_lossy().contains("part-00002-of-")).unwrap();
    succeeds(&mut run(&second, &at("t.txt"), "16", &at("again.gguf")));
    let mut direct = moeslice();
    direct.args(["profile", "-dev", "none", "-t", "1", "-c", "128", "-m"]).arg(at("whole.gguf"));
    succeeds(direct.arg("-f").arg(at("t.txt")).arg("-o").arg(at("direct.json")));
    assert_eq!(json(&at("again.usage.json"))["layers"], json(&at("direct.json"))["layers"]);
}

#[test]
fn impossible_run_is_refused_before_the_model_is_loaded() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    // llama.cpp would refuse this model, but is not even asked.
    variant(&at("m.gguf"), |metadata, _| {
        metadata.remove("tokenizer.ggml.model");
    });
    fs::write(at("t.txt"), "text").unwrap();
    let try_run = |keep: &str, output: &str, code: i32, words: &[&str]| {
        refuses(&mut run(&at("m.gguf"), &at("t.txt"), keep, &at(output)), code, words);
    };
    try_run("3", "o.gguf", 3, &["cannot keep 3 of 32"]);
    try_run("0", "o.gguf", 3, &["cannot keep 0 of 32"]);
    try_run("40", "o.gguf", 3, &["cannot keep 40 of 32"]);
    try_run("16", "m.gguf", 2, &["the model itself"]);
    try_run("16", "no/o.gguf", 2, &["does not exist"]);
    try_run("16", "o.gguf/", 2, &["not a regular file"]);
    try_run("size:1", "o.gguf", 3, &["m.gguf"]);
    fs::write(at("o.usage.json"), "precious").unwrap();
    try_run("16", "o.gguf", 2, &["o.usage.json", "exists already"]);
    assert!(!at("o.gguf").exists());
}
