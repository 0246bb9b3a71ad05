//! A usage of a large model, and its page.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Names of the corpora, one of which is no name that a page may take at its word.
pub const NAMES: [&str; 3] = ["dev", "<script>alert(1)</script>", "family"];

/// A usage of `n_layer` layers of `n_expert` experts, eight of them used, with its halves.
pub fn usage(n_layer: u32, n_expert: u64) -> Value {
    let layers: Vec<Value> = (0..n_layer)
        .map(|layer| {
            let column = |corpus: u64| -> Vec<u64> {
                let rough = |id: u64| (id * 7919 + corpus * 104_729 + u64::from(layer) * 613) % 997;
                let mut count: Vec<u64> =
                    (0..n_expert).map(|id| 2 * (rough(id) * rough(id) / 400 + 5)).collect();
                // Selections are those of whole tokens, in each half.
                let rest = count.iter().sum::<u64>() % 16;
                count[0] += 16 - rest;
                count
            };
            let sums = |count: Vec<u64>| json!({ "n_tokens": count.iter().sum::<u64>() / 8, "count": count });
            let columns: Vec<Vec<u64>> = (0..3).map(column).collect();
            let of = |part: &dyn Fn(u64) -> u64| -> Value {
                let corpora = NAMES.iter().zip(&columns);
                corpora
                    .map(|(name, count)| ((*name).to_owned(), sums(count.iter().map(|&n| part(n)).collect())))
                    .collect()
            };
            let total =
                (0..n_expert as usize).map(|id| columns.iter().map(|count| count[id]).sum()).collect();
            json!({
                "layer": layer, "n_expert_used": 8, "total": sums(total),
                "corpora": of(&|n| n), "half": of(&|n| n / 2),
            })
        })
        .collect();
    let tokens = |name: &str| {
        layers.iter().map(|layer| layer["corpora"][name]["n_tokens"].as_u64().unwrap()).max().unwrap()
    };
    let corpora: Vec<Value> = NAMES
        .iter()
        .map(|name| {
            let file = json!({ "path": "a.txt", "bytes": 9, "sha256": "ab".repeat(32) });
            json!({ "name": name, "files": [file], "tokens": tokens(name) })
        })
        .collect();
    json!({
        "schema": "moeslice.usage/1",
        "model": {
            "file": "large-model-with-quite-a-long-name-Q4_K_M.gguf", "architecture": "qwen3moe",
            "fingerprint": "sha256:f", "router_hash": "sha256:r", "n_layer": n_layer, "n_expert": n_expert,
            "n_expert_used": 8, "expert_layers": (0..n_layer).collect::<Vec<_>>(),
        },
        "run": { "moeslice": "0", "ctx_size": 512, "batch_size": 512, "ubatch_size": 512, "wall_seconds": 1.0 },
        "corpora": corpora,
        "layers": layers,
    })
}

/// The page of a usage, made by the program.
pub fn page(folder: &TempDir, usage: &Value, more: &[&str]) -> PathBuf {
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("u.json"), usage.to_string()).expect("the folder takes a file");
    report(&at("u.json"), &at("page.html"), more);
    at("page.html")
}

/// How far a page reaches beyond its window, as an expression in it.
pub fn beyond() -> &'static str {
    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
}

fn report(usage: &Path, page: &Path, more: &[&str]) {
    let [usage, page] = [usage, page].map(|path| path.to_str().expect("paths here are UTF-8"));
    run(&[&["report", usage, "--html", page], more].concat());
}

/// Runs the program.
pub fn run(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_moeslice")).args(arguments).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
