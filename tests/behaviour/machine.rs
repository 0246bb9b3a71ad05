//! The pass on every machine: how windows are computed, which devices take part, and what llama.cpp's flags do.

use crate::profile::{counts, profile, sums, text};
use crate::support::{demo, folder, json, moeslice, refuses, succeeds, variant};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Profiles a text of the demo model with `flags`, and gives the usage.
fn usage_with(flags: &[&str], variables: &[(&str, &str)]) -> Value {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), text(1500)).unwrap();
    let mut command = profile(&demo(), Path::new("-"));
    command.arg("-f").arg(folder.path().join("t.txt")).args(flags).envs(variables.iter().copied());
    serde_json::from_str(&succeeds(&mut command)).unwrap()
}

fn ran(usage: &Value) -> (u64, u64) {
    (usage["run"]["ubatches"].as_u64().unwrap(), usage["run"]["largest_ubatch"].as_u64().unwrap())
}

#[test]
fn usage_says_how_many_ubatches_ran_and_how_large() {
    let apart = usage_with(&["-c", "64", "-ub", "256", "-kvu", "off"], &[]);
    let tokens = apart["corpora"][0]["tokens"].as_u64().unwrap();
    assert_eq!(ran(&apart), (tokens.div_ceil(64), 64), "a window is an ubatch, whatever -ub says");
    assert_eq!(apart["run"]["kv_unified"], false);
    let together = usage_with(&["-c", "64", "-ub", "256", "-kvu"], &[]);
    assert_eq!(ran(&together), (tokens.div_ceil(256), 256), "an ubatch holds four windows");
    assert_eq!(together["run"]["kv_unified"], true);
    for layer in 0..4 {
        let (a, b) = (counts(&apart, layer, ""), counts(&together, layer, ""));
        let moved: u64 = a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b)).sum::<u64>() / 2;
        assert!(moved * 100 <= tokens * 4, "layer {layer}: {moved} of {} selections moved", tokens * 4);
    }
    // Without a GPU, the processor has least to do with windows apart.
    assert_eq!(usage_with(&["-c", "64"], &[])["run"]["kv_unified"], false);
}

#[test]
fn window_longer_than_batch_is_computed_in_slices() {
    let whole = usage_with(&["-c", "256", "-b", "256", "-ub", "32"], &[]);
    let sliced = usage_with(&["-c", "256", "-b", "32", "-ub", "32"], &[]);
    assert_eq!(ran(&whole), ran(&sliced));
    assert_eq!(sliced["run"]["batch_size"], 32);
    for layer in 0..4 {
        assert_eq!(counts(&whole, layer, ""), counts(&sliced, layer, ""), "layer {layer}");
    }
    let logits = usage_with(&["-c", "256", "-b", "32", "-ub", "32", "--lm-head"], &[]);
    assert_eq!(counts(&logits, 3, ""), counts(&sliced, 3, ""), "with logits, of 32 tokens at once");
}

#[test]
fn model_that_attends_to_later_tokens_runs() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("m.gguf"), |metadata, _| metadata.set("qwen3moe.attention.causal", false));
    fs::write(at("t.txt"), text(1500)).unwrap();
    let run = |model: &Path| {
        let mut command = profile(model, &at("u.json"));
        succeeds(command.arg("--force").args(["-ub", "32", "-f"]).arg(at("t.txt")));
        json(&at("u.json"))
    };
    let (causal, both_ways) = (run(&demo()), run(&at("m.gguf")));
    assert_eq!(ran(&causal).1, 32);
    assert_eq!(ran(&both_ways).1, 128, "a window is computed at once");
    let tokens = sums(&causal, 0, "")["n_tokens"].as_u64().unwrap();
    assert_eq!(sums(&both_ways, 3, "")["n_tokens"].as_u64(), Some(tokens));
    assert_ne!(counts(&causal, 3, ""), counts(&both_ways, 3, ""));
}

#[test]
fn threads_follow_the_processors_that_may_be_used() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(300)).unwrap();
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0", env!("CARGO_BIN_EXE_moeslice"), "profile", "-q", "-dev", "none", "-m"])
        .arg(demo());
    let status = command.arg("-f").arg(at("t.txt")).arg("-o").arg(at("u.json")).status().unwrap();
    assert!(status.success());
    assert_eq!(json(&at("u.json"))["run"]["threads"], 1);
}

#[test]
fn too_little_memory_tells_what_was_asked_and_what_is_free() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(300)).unwrap();
    let script = format!(
        "ulimit -v 3000000; exec {} profile -q -dev none -t 1 -c 4194304 -b 64 --no-memory-check -m {} -f {} -o {}",
        env!("CARGO_BIN_EXE_moeslice"),
        demo().display(),
        at("t.txt").display(),
        at("u.json").display()
    );
    let words = ["a context of 4194304 tokens", "4.00 GiB were asked of CPU", "free", "-c, -b or -ub"];
    refuses(assert_cmd::Command::new("bash").args(["-c", &script]), 1, &words);
    assert!(!at("u.json").exists());
}

#[test]
fn flags_and_values_of_llama_cpp_are_taken_as_it_takes_them() {
    let plain = usage_with(&[], &[]);
    assert_eq!(usage_with(&["-tb", "2"], &[])["run"]["threads"], 2);
    assert_eq!(usage_with(&["-mg", "0", "-sm", "layer", "-ts", "1"], &[])["layers"], plain["layers"]);
    assert_eq!(usage_with(&["-c", "0"], &[])["run"]["ctx_size"], 512, "what the model was trained on");
    assert_eq!(
        usage_with(&[], &[("LLAMA_ARG_CTX_SIZE", ""), ("LLAMA_ARG_CPU_MOE", "")])["layers"],
        plain["layers"]
    );
    for flags in [
        &["-lm", "none", "-ngl", "auto", "-fa", "auto", "--numa", "distribute"] as &[&str],
        &["-nkvo", "-nr", "--no-host", "--no-op-offload", "--check-tensors", "--moe-cache-mib", "0"],
        &["-ot", "exps=CPU", "-ncffn", "1", "--flash_attn", "on", "-t", "1"],
    ] {
        let tokens = |usage: &Value| sums(usage, 3, "")["n_tokens"].clone();
        assert_eq!(tokens(&usage_with(flags, &[])), tokens(&plain), "{flags:?}");
    }
    let quantised = usage_with(&["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"], &[]);
    assert_ne!(counts(&quantised, 3, ""), counts(&plain, 3, ""), "keys and values are rounded");
    let unified = |variables| usage_with(&["-c", "64"], variables)["run"]["kv_unified"].clone();
    assert_eq!(unified(&[("LLAMA_ARG_KV_UNIFIED", "on")]), true);
    assert_eq!(unified(&[("LLAMA_ARG_KV_UNIFIED", "on"), ("LLAMA_ARG_NO_KV_UNIFIED", "1")]), false);
    let bos = usage_with(&["--override-kv", "tokenizer.ggml.add_bos_token=bool:true"], &[]);
    assert_ne!(counts(&bos, 0, ""), counts(&plain, 0, ""), "the model begins with a token of its own");
}

#[test]
fn flags_without_meaning_here_are_named_and_never_read_as_others() {
    let folder = folder();
    let refused = |flags: &[&str], words: &[&str]| {
        let mut command = profile(&demo(), &folder.path().join("u.json"));
        refuses(command.args(["-f", "t.txt"]).args(flags), 2, words);
    };
    refused(&["-np", "4"], &["-np is a flag of llama.cpp"]);
    refused(&["--rope-scaling", "yarn"], &["--rope-scaling is a flag of llama.cpp"]);
    refused(&["--no-mmap"], &["--load-mode none"]);
    refused(&["--mlock"], &["--load-mode mlock"]);
    refused(&["-ctk", "q3_k"], &["q8_0", "iq4_nl"]);
    refused(&["-hf", "nobody/nothing-GGUF:Q8_0"], &["nobody/nothing-GGUF in Q8_0", "hf download"]);
    refused(&["--nonsense"], &["--nonsense"]);
}

#[test]
fn downloaded_model_is_found_by_its_repository() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let snapshot = at("cache/models--me--demo-GGUF/snapshots/0123");
    fs::create_dir_all(&snapshot).unwrap();
    std::os::unix::fs::symlink(demo(), snapshot.join("demo-Q8_0.gguf")).unwrap();
    fs::write(at("t.txt"), text(300)).unwrap();
    let mut command = moeslice();
    command.env("HF_HUB_CACHE", at("cache")).env_remove("LLAMA_CACHE");
    command.args(["profile", "-q", "-dev", "none", "-t", "1", "-hf", "me/demo-GGUF:Q8_0", "-o", "-", "-f"]);
    let usage: Value = serde_json::from_str(&succeeds(command.arg(at("t.txt")))).unwrap();
    assert_eq!(usage["model"]["file"], "demo-Q8_0.gguf");

    let by_variables = |repository: &str, more: &[&str]| {
        let mut command = moeslice();
        command.env("HF_HUB_CACHE", at("cache")).env_remove("LLAMA_CACHE");
        command.env("LLAMA_ARG_HF_REPO", repository).env("LLAMA_ARG_HF_FILE", "demo-Q8_0.gguf");
        command.args(["profile", "-q", "-dev", "none", "-t", "1", "-o", "-"]).args(more);
        command.arg("-f").arg(at("t.txt"));
        command
    };
    assert!(succeeds(&mut by_variables("me/demo-GGUF", &[])).contains("demo-Q8_0.gguf"));
    refuses(&mut by_variables("nobody/nothing", &[]), 2, &["nobody/nothing", "hf download"]);
    // What is named on the command line comes first, and commands without a model need none.
    let demo = demo().display().to_string();
    assert!(succeeds(&mut by_variables("nobody/nothing", &["-m", &demo])).contains("moeslice-demo"));
    succeeds(moeslice().env("LLAMA_ARG_HF_REPO", "nobody/nothing").args(["inspect", &demo]));
}

#[test]
fn file_that_llama_cpp_asserts_on_is_named() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("m.gguf"), |metadata, _| {
        metadata.set("qwen3moe.classifier.activation", "none that there is")
    });
    fs::write(at("t.txt"), text(300)).unwrap();
    let mut command = profile(&at("m.gguf"), &at("u.json"));
    refuses(command.arg("-f").arg(at("t.txt")), 3, &["m.gguf", "unsupported classifier activation"]);
}

/// The loader of Vulkan tells on stderr what it loads.
#[test]
#[cfg(feature = "vulkan")]
fn no_gpu_driver_is_loaded_without_a_gpu() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(300)).unwrap();
    let drivers_searched = |device: &[&str]| {
        let mut command = moeslice();
        command.args(["profile", "-q", "-t", "1", "-o", "-", "-m"]).arg(demo()).args(device);
        let output = command.env("VK_LOADER_DEBUG", "driver").arg("-f").arg(at("t.txt")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).contains("driver")
    };
    assert!(drivers_searched(&[]), "the loader says what it does");
    assert!(!drivers_searched(&["-dev", "none"]));
    assert!(!drivers_searched(&["-dev", "CPU"]));
}
