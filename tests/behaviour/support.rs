//! The program, the demo model, and variants of it.

use assert_cmd::Command;
use moeslice::gguf::{self, Metadata, Model, TensorInfo};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The program, without what the environment would tell llama.cpp.
pub fn moeslice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moeslice"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LLAMA_ARG_") {
            command.env_remove(name);
        }
    }
    command
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The demo model.
pub fn demo() -> PathBuf {
    repository("models/moeslice-demo-Q8_0.gguf")
}

/// A folder that is gone after the test.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// What a command is expected to do: exit code, and words in its one line on stderr.
#[track_caller]
pub fn refuses(command: &mut Command, code: i32, words: &[&str]) {
    let output = command.output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is missing in: {stderr}");
    }
    assert_eq!(stderr.trim_end().lines().count(), 1, "more than one line: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Runs a command that succeeds; gives its stdout.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// A JSON file.
#[track_caller]
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the file is there")).expect("the file is JSON")
}

/// Writes the demo model with other metadata, or tensors of other bytes.
pub fn variant(path: &Path, change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) {
    let model = Model::open(&demo()).expect("the demo model opens");
    let mut metadata = model.metadata().clone();
    let mut tensors = model
        .tensors()
        .iter()
        .map(|tensor| {
            let mut bytes = vec![0; usize::try_from(tensor.info.bytes()).unwrap()];
            model.read_exact_at(tensor, 0, &mut bytes).expect("the demo model reads");
            (tensor.info.clone(), bytes)
        })
        .collect();
    change(&mut metadata, &mut tensors);
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).expect("the folder takes files"));
    gguf::write_model(&mut out, &metadata, &tensors).expect("the variant can be laid out");
}

/// A usage file of `model`, a variant or cut of the demo model, in which expert `e` of layer `l` was selected
/// `count(l, e)` times; the counts of a layer must add up to a number of tokens.
///
/// Written as text, without the types that the program reads it with: these tests hold the program to the documented
/// format. The unit tests build usages of the types in `src/usage/test_usage.rs`, out of reach from here.
pub fn write_usage(path: &Path, model: &Path, count: impl Fn(u32, u32) -> u64) {
    let inspected: Value =
        serde_json::from_str(&succeeds(moeslice().arg("inspect").arg(model).arg("--json"))).unwrap();
    let n_expert = u32::try_from(inspected["n_expert"].as_u64().unwrap()).unwrap();
    let used = inspected["n_expert_used"].as_u64().unwrap();
    let layers: Vec<Value> = (0..4)
        .map(|layer| {
            let counts: Vec<u64> = (0..n_expert).map(|expert| count(layer, expert)).collect();
            let sum: u64 = counts.iter().sum();
            let tokens = sum / used;
            assert!(sum.is_multiple_of(used) && counts.iter().all(|&count| count <= tokens), "{counts:?}");
            let sums = serde_json::json!({ "n_tokens": tokens, "count": counts });
            serde_json::json!({ "layer": layer, "n_expert_used": used, "total": sums, "corpora": { "text": sums } })
        })
        .collect();
    let usage = serde_json::json!({
        "schema": "moeslice.usage/1",
        "model": {
            "file": "m.gguf",
            "architecture": inspected["architecture"],
            "fingerprint": inspected["fingerprint"],
            "router_hash": inspected["router_hash"],
            "n_layer": 4,
            "n_expert": n_expert,
            "n_expert_used": used,
            "expert_layers": [0, 1, 2, 3],
        },
        "run": { "moeslice": "0", "ctx_size": 1, "batch_size": 1, "ubatch_size": 1, "wall_seconds": 0.0 },
        "corpora": [{ "name": "text", "files": [], "tokens": layers[0]["total"]["n_tokens"] }],
        "layers": layers,
    });
    std::fs::write(path, usage.to_string()).unwrap();
}
