//! Profiling: what is counted, and what is refused.

use crate::support::{demo, folder, json, moeslice, refuses, repository, succeeds, variant};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// `profile` on the processor; texts and further flags follow.
pub fn profile(model: &Path, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command
        .args(["profile", "-q", "-dev", "none", "-c", "128", "-t", "1", "-m"])
        .arg(model)
        .arg("-o")
        .arg(output);
    command
}

pub fn text(length: usize) -> String {
    let files = ["expression.py", "digraph.py", "intervals.py"];
    let read = |name: &str| fs::read_to_string(repository("corpora/dev").join(name)).unwrap();
    files.map(read).concat().chars().take(length).collect()
}

pub fn sums<'u>(usage: &'u Value, layer: usize, corpus: &str) -> &'u Value {
    match corpus {
        "" => &usage["layers"][layer]["total"],
        name => &usage["layers"][layer]["corpora"][name],
    }
}

pub fn counts(usage: &Value, layer: usize, corpus: &str) -> Vec<u64> {
    let list = sums(usage, layer, corpus)["count"].as_array().unwrap();
    list.iter().map(|count| count.as_u64().unwrap()).collect()
}

#[test]
fn profile_counts_each_corpus_apart_and_together() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.txt"), text(3000)).unwrap();
    fs::create_dir(at("b")).unwrap();
    fs::write(at("b/one.md"), "Y aconteció que en aquellos días la familia se juntó en la casa. ".repeat(9))
        .unwrap();
    fs::write(at("b/two.md"), text(500)).unwrap();
    let run = |output: &str, texts: &[&str]| {
        let mut command = profile(&demo(), &at(output));
        for name in texts {
            command.arg("-f").arg(at(name));
        }
        succeeds(&mut command);
        json(&at(output))
    };
    let both = run("both.json", &["a.txt", "b"]);
    let (a, b) = (run("a.json", &["a.txt"]), run("b.json", &["b"]));
    let names: Vec<&str> =
        both["corpora"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    for layer in 0..4 {
        assert_eq!(counts(&both, layer, "a"), counts(&a, layer, ""));
        assert_eq!(counts(&both, layer, "b"), counts(&b, layer, ""));
        let sum: Vec<u64> =
            counts(&a, layer, "").iter().zip(counts(&b, layer, "")).map(|(a, b)| a + b).collect();
        assert_eq!(counts(&both, layer, ""), sum);
        let tokens = sums(&both, layer, "")["n_tokens"].as_u64().unwrap();
        assert_eq!(sum.iter().sum::<u64>(), tokens * 4, "every token selects four experts in every layer");
        let weights = sums(&both, layer, "")["weight"].as_array().unwrap();
        let mass: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        assert!(
            (mass - tokens as f64).abs() < 1e-3 * tokens as f64,
            "weights of a token add up to one: {mass} of {tokens}"
        );
    }
    assert_ne!(counts(&both, 3, "a"), counts(&both, 3, "b"));
}

#[test]
fn profile_of_the_same_input_differs_in_run_only() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(2000)).unwrap();
    let run = |output: &str| {
        succeeds(profile(&demo(), &at(output)).arg("-f").arg(at("t.txt")));
        let mut usage = json(&at(output));
        usage["run"] = Value::Null;
        usage
    };
    assert_eq!(run("one.json"), run("two.json"));
}

#[test]
fn batch_settings_never_change_the_counts() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(2500)).unwrap();
    let run = |flags: &[&str]| {
        succeeds(profile(&demo(), &at("u.json")).arg("--force").arg("-f").arg(at("t.txt")).args(flags));
        let usage = json(&at("u.json"));
        (0..4).map(|layer| counts(&usage, layer, "")).collect::<Vec<_>>()
    };
    let plain = run(&[]);
    assert_eq!(run(&["-b", "128"]), plain, "one window a batch");
    assert_eq!(run(&["--lm-head"]), plain, "with logits");
    assert_eq!(run(&["--score-data", "counts"]), plain, "without gate weights");
    // Other kernels serve a small ubatch, and round otherwise: near-ties may fall the other way.
    let several = run(&["-ub", "32"]);
    for (layer, (a, b)) in plain.iter().zip(&several).enumerate() {
        let tokens = a.iter().sum::<u64>() / 4;
        assert_eq!(b.iter().sum::<u64>() / 4, tokens, "layer {layer} sees every token of every ubatch");
        let moved: u64 = a.iter().zip(b).map(|(&a, &b)| a.abs_diff(b)).sum::<u64>() / 2;
        assert!(moved * 50 <= tokens, "layer {layer}: {moved} of {tokens} tokens selected another expert");
    }
}

#[test]
fn short_texts_and_last_windows_are_counted() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("short.txt"), "def f(x):\n    return x\n").unwrap();
    succeeds(profile(&demo(), &at("short.json")).arg("-f").arg(at("short.txt")));
    let short = json(&at("short.json"));
    let tokens = short["corpora"][0]["tokens"].as_u64().unwrap();
    assert!((4..64).contains(&tokens), "{tokens}");
    assert_eq!(sums(&short, 3, "")["n_tokens"].as_u64(), Some(tokens), "the last layer sees every token");

    fs::write(at("long.txt"), text(1500)).unwrap();
    succeeds(profile(&demo(), &at("long.json")).arg("-f").arg(at("long.txt")));
    let all = json(&at("long.json"))["corpora"][0]["tokens"].as_u64().unwrap();
    assert!(!all.is_multiple_of(128), "the last window is meant to be short: {all}");
    succeeds(profile(&demo(), &at("some.json")).args(["--chunks", "2", "-f"]).arg(at("long.txt")));
    assert_eq!(json(&at("some.json"))["corpora"][0]["tokens"], 256);
}

#[test]
fn leading_token_replaces_the_first_of_each_window() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("bos.gguf"), |metadata, _| metadata.set("tokenizer.ggml.add_bos_token", true));
    fs::write(at("t.txt"), text(1200)).unwrap();
    let run = |model: &Path| {
        succeeds(profile(model, &at("u.json")).arg("--force").arg("-f").arg(at("t.txt")));
        json(&at("u.json"))
    };
    let (plain, bos) = (run(&demo()), run(&at("bos.gguf")));
    let tokens = |usage: &Value| usage["corpora"][0]["tokens"].as_u64().unwrap();
    assert_eq!(tokens(&bos), tokens(&plain) + 1, "one token before the text, none added to later windows");
    assert_ne!(counts(&bos, 0, ""), counts(&plain, 0, ""));
}

#[test]
fn inputs_that_are_not_texts_are_refused() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let out = at("u.json");
    fs::write(at("empty.txt"), "").unwrap();
    refuses(profile(&demo(), &out).arg("-f").arg(at("empty.txt")), 3, &["holds no text"]);
    fs::write(at("latin.txt"), b"ma\xF1ana").unwrap();
    refuses(profile(&demo(), &out).arg("-f").arg(at("latin.txt")), 3, &["latin.txt", "UTF-8"]);
    fs::write(at("wide.txt"), b"\xFF\xFEa\0b\0").unwrap();
    refuses(profile(&demo(), &out).arg("-f").arg(at("wide.txt")), 3, &["UTF-16"]);
    refuses(profile(&demo(), &out).arg("-f").arg(at("missing.txt")), 3, &["missing.txt"]);
    assert!(!out.exists());
}

#[test]
fn unknown_device_is_refused_with_the_known_ones() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), "text").unwrap();
    let mut command = moeslice();
    command
        .args(["profile", "-dev", "Nonsense7", "-o", "-", "-m"])
        .arg(demo())
        .arg("-f")
        .arg(folder.path().join("t.txt"));
    refuses(&mut command, 2, &["Nonsense7", "CPU", "none"]);
}

#[test]
fn gpu_layers_without_gpu_run_on_cpu_with_a_warning() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), "text").unwrap();
    let mut command = moeslice();
    command.args(["profile", "-dev", "none", "-ngl", "99", "-o", "-", "-m"]).arg(demo());
    let output = command.arg("-f").arg(folder.path().join("t.txt")).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--gpu-layers 99 has no effect"), "{output:?}");
}

#[test]
fn model_that_llama_cpp_refuses_says_why() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("headless.gguf"), |metadata, _| {
        metadata.remove("tokenizer.ggml.model");
    });
    fs::write(at("t.txt"), "text").unwrap();
    refuses(profile(&at("headless.gguf"), &at("u.json")).arg("-f").arg(at("t.txt")), 3, &["tokenizer"]);
}

#[test]
fn existing_output_is_refused_before_the_model_is_loaded() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    // llama.cpp would refuse this model, but is not even asked.
    variant(&at("headless.gguf"), |metadata, _| {
        metadata.remove("tokenizer.ggml.model");
    });
    fs::write(at("u.json"), "precious").unwrap();
    fs::write(at("t.txt"), "text").unwrap();
    refuses(profile(&at("headless.gguf"), &at("u.json")).arg("-f").arg(at("t.txt")), 2, &["exists already"]);
    assert_eq!(fs::read(at("u.json")).unwrap(), b"precious");
}

#[test]
fn llama_cpp_variables_and_short_flags_are_accepted() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), text(1500)).unwrap();
    let run = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = profile(&demo(), Path::new("-"));
        command.arg("-f").arg(folder.path().join("t.txt")).args(flags).envs(variables.iter().copied());
        let usage: Value = serde_json::from_str(&succeeds(&mut command)).unwrap();
        usage["run"]["ubatch_size"].as_u64().unwrap()
    };
    assert_eq!(run(&["-ub", "96"], &[]), 96);
    assert_eq!(run(&["-ub=64"], &[]), 64);
    assert_eq!(run(&[], &[("LLAMA_ARG_UBATCH", "80")]), 80);
    run(&["-fa", "1", "-cmoe"], &[("LLAMA_ARG_CPU_MOE", "enabled")]);
    run(&["-ncmoe", "2"], &[("LLAMA_ARG_FLASH_ATTN", "-1"), ("LLAMA_ARG_CPU_MOE", "0")]);
}

#[test]
fn windows_of_one_token_are_profiled() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), "def f(x):\n    return x\n".repeat(60)).unwrap();
    let mut command = moeslice();
    command.args(["profile", "-q", "-dev", "none", "-t", "1", "-c", "1", "-o", "-", "-m"]).arg(demo());
    let usage: Value =
        serde_json::from_str(&succeeds(command.arg("-f").arg(folder.path().join("t.txt")))).unwrap();
    let tokens = usage["corpora"][0]["tokens"].as_u64().unwrap();
    assert!(tokens > 256, "more windows than a context holds sequences: {tokens}");
    assert_eq!(sums(&usage, 3, "")["n_tokens"].as_u64(), Some(tokens));
}

#[test]
fn profile_under_nohup_survives_a_hangup() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), text(usize::MAX).repeat(60)).unwrap();
    let script = format!(
        "trap '' HUP; {} profile -q -dev none -t 1 -m {} -f {} -o {} & pid=$!; sleep 1; kill -HUP $pid; wait $pid",
        env!("CARGO_BIN_EXE_moeslice"),
        demo().display(),
        at("t.txt").display(),
        at("u.json").display()
    );
    assert!(std::process::Command::new("bash").args(["-c", &script]).status().unwrap().success());
    assert!(at("u.json").exists());
}

#[test]
fn link_within_a_folder_counts_once() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a.txt"), text(300)).unwrap();
    std::os::unix::fs::symlink("a.txt", at("d/b.txt")).unwrap();
    succeeds(profile(&demo(), &at("u.json")).arg("-f").arg(at("d")));
    assert_eq!(json(&at("u.json"))["corpora"][0]["files"].as_array().unwrap().len(), 1);
}

/// Interrupts are sent until one arrives between the start of the program and its end.
#[test]
#[ignore = "slow: run with scripts/test --all"]
fn vulkan_counts_differ_from_cpu_in_few_near_ties() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    // A text of the kind that the model was trained on: on others its routers are undecided more often.
    let known = fs::read_to_string(repository("corpora/dev/intervals.py")).unwrap();
    fs::write(at("t.txt"), known.chars().take(6000).collect::<String>()).unwrap();
    let run = |output: &str, device: &str| {
        let mut command = moeslice();
        command
            .env("GGML_VK_VISIBLE_DEVICES", "0")
            .args(["profile", "-dev", device, "-c", "128", "-ub", "64", "-fa", "off"]);
        succeeds(command.arg("-m").arg(demo()).arg("-f").arg(at("t.txt")).arg("-o").arg(at(output)));
        json(&at(output))
    };
    let (cpu, vulkan) = (run("cpu.json", "none"), run("vulkan.json", "Vulkan0"));
    assert_eq!(vulkan["run"]["devices"][0], "Vulkan0");
    for layer in 0..4 {
        let tokens = sums(&cpu, layer, "")["n_tokens"].as_u64().unwrap();
        let differences: Vec<u64> = counts(&cpu, layer, "")
            .iter()
            .zip(counts(&vulkan, layer, ""))
            .map(|(&a, b)| a.abs_diff(b))
            .collect();
        let (largest, moved) = (*differences.iter().max().unwrap(), differences.iter().sum::<u64>() / 2);
        println!("layer {layer}: {moved} of {} selections moved, the largest count by {largest}", tokens * 4);
        assert!(largest * 100 <= tokens, "layer {layer}: a count of {tokens} tokens differs by {largest}");
        assert!(moved * 100 <= tokens * 4, "layer {layer}: {moved} of {} selections moved", tokens * 4);
    }
}
