//! Replay: what it prints, and what it refuses.

use crate::support::{demo, folder, moeslice, refuses, succeeds};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A trace of the demo model's shape, 4 layers of 32 experts of which a token uses 4: 64 tokens that are read in two
/// ubatches, and `decode` that are written.
fn write_trace(folder: &TempDir, decode: usize) -> PathBuf {
    let path = folder.path().join("t.csv");
    let mut text = "session,phase,ubatch,position,layer,experts\n".to_owned();
    for token in 0..64 + decode {
        let (phase, ubatch) = if token < 64 { ("prefill", token / 32) } else { ("decode", token) };
        for layer in 0..4 {
            let first = (token * (layer + 1)) % 29;
            let _ = writeln!(
                text,
                "0,{phase},{ubatch},{token},{layer},{first} {} {} {}",
                first + 1,
                first + 2,
                first + 3
            );
        }
    }
    fs::write(&path, text).unwrap();
    path
}

fn replay(trace: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command.arg("replay").arg(trace);
    command
}

fn json_of(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&succeeds(command.arg("--json"))).unwrap()
}

#[test]
fn replay_counts_every_access_once_and_names_its_caches() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let found = json_of(replay(&trace).args([
        "--capacity",
        "8,16",
        "--policy",
        "lru,belady",
        "--warmup",
        "16",
        "--curve",
    ]));
    assert_eq!((found["tokens"].as_u64(), found["n_layer"].as_u64()), (Some(164), Some(4)));
    let rows = found["rows"].as_array().unwrap();
    let names: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["policy"].as_str().unwrap(), row["capacity"].as_u64().unwrap())).collect();
    assert_eq!(names, [("lru", 8), ("belady", 8), ("lru", 16), ("belady", 16)]);
    for row in rows {
        let count = |part: &Value, name: &str| part[name].as_u64().unwrap();
        assert_eq!(count(row, "hits") + count(row, "misses"), count(row, "requests"));
        assert_eq!(count(&row["decode"], "requests"), 100 * 4 * 4);
        assert_eq!(
            count(row, "cold_misses") + count(row, "warm_misses") + count(row, "steady_misses"),
            count(row, "misses")
        );
    }
    assert!(rows[1]["misses"].as_u64() <= rows[0]["misses"].as_u64());
    let points = found["curve"]["points"].as_array().unwrap();
    let at =
        |capacity: u64| points.iter().find(|point| point["capacity"] == capacity).unwrap()["misses"].as_u64();
    assert_eq!(at(8), rows[0]["misses"].as_u64());
    let table = succeeds(replay(&trace).args(["--capacity", "8", "--warmup", "16"]));
    assert!(table.contains("8/layer") && table.contains("belady") && table.contains("cold:"), "{table}");
}

#[test]
fn replay_refuses_what_has_no_answer() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    refuses(&mut replay(&trace), 2, &["--capacity", "--memory"]);
    refuses(replay(&trace).args(["--capacity", "3"]), 2, &["below the 4 that a token uses"]);
    refuses(
        replay(&trace).args(["--capacity", "8", "--policy", "best"]),
        2,
        &["\"best\" is not a policy", "lru"],
    );
    refuses(replay(&trace).args(["--capacity", "8", "--warmup", "164"]), 3, &["164 tokens", "warm-up"]);
    refuses(replay(&trace).args(["--memory", "1MiB"]), 3, &["bytes of an expert", "-m"]);
    refuses(replay(&trace).args(["--capacity", "8", "--lambda", "0.1"]), 3, &["no router values"]);
    refuses(replay(&trace).args(["--capacity", "8", "--prefetch", "tail:2", "--policy", "arc"]), 2, &["arc"]);
    refuses(replay(&demo()).args(["--capacity", "8"]), 3, &["not a trace"]);
    refuses(replay(&folder.path().join("none")).args(["--capacity", "8"]), 3, &["cannot read the trace"]);
}

#[test]
fn model_gives_the_bytes_that_a_trace_lacks() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let with_model = |flags: &[&str]| {
        let mut command = replay(&trace);
        command.arg("-m").arg(demo()).args(["--warmup", "16"]).args(flags);
        command
    };
    let found = json_of(&mut with_model(&["--memory", "1MiB", "--policy", "slru", "--bandwidth", "10GB"]));
    let row = &found["rows"][0];
    let each = row["bytes"].as_u64().unwrap() / row["misses"].as_u64().unwrap();
    assert_eq!(each, 26_112, "gate, up and down of one expert, without the router's row");
    assert_eq!(found["working_set_bytes"], 16 * each);
    let decode = &row["decode"];
    let seconds = decode["bytes_per_token"].as_f64().unwrap() / 10e9
        + decode["misses_per_token"].as_f64().unwrap() * 10e-6;
    assert!((decode["tokens_per_second"].as_f64().unwrap() * seconds - 1.0).abs() < 1e-9);

    let output = with_model(&["--memory", "200kB", "--policy", "lru"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("does not hold the 16 experts of one token"), "{said}");

    let advice = json_of(&mut with_model(&["--memory", "2MiB", "--advise"]));
    let rows = advice["rows"].as_array().unwrap();
    let choices: Vec<&str> = rows.iter().map(|row| row["choice"].as_str().unwrap()).collect();
    assert_eq!(choices, ["cut", "host-layers", "cache"]);
    assert!(rows.iter().all(|row| row["device_bytes"].as_u64().unwrap() <= 2 << 20));
    let flags: Vec<&str> = rows.iter().map(|row| row["flags"].as_str().unwrap()).collect();
    assert!(flags[0].contains("--keep 20"), "{flags:?}");
    assert_eq!(flags[1..], ["-ngl all -ncmoe 2", "-ngl all -cmoe --moe-cache-mib 2"]);
    // All experts of a layer of two ubatches cross the bus for 64 tokens, in two layers.
    let fetched = rows[1]["prefill_bus_bytes"].as_f64().unwrap() * 64.0 / 26_112.0;
    assert!((fetched - fetched.round()).abs() < 1e-6 && fetched <= 4.0 * 32.0, "{fetched}");
    assert_eq!(rows[1]["decode_host_bytes"].as_f64(), Some(2.0 * 4.0 * 26_112.0));
}

#[test]
fn replay_writes_a_page_beside_its_output_and_replaces_none() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let page = folder.path().join("r.html");
    let arguments = ["--capacity", "8", "--warmup", "16", "--report"];
    let found = json_of(replay(&trace).args(arguments).arg(&page));
    assert_eq!(found["rows"][0]["capacity"], 8);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("With room for 8 experts a layer") && text.contains("t.csv"), "{text}");
    refuses(replay(&trace).args(arguments).arg(&page), 2, &["--force"]);
    refuses(replay(&trace).args(arguments).arg(&trace), 2, &["t.csv"]);
    succeeds(replay(&trace).args(arguments).arg(&page).arg("--force"));
}

#[test]
fn colours_follow_their_flag_in_every_command_with_a_table() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let trace = trace.to_str().unwrap();
    let model = demo();
    let model = model.to_str().unwrap();
    let commands: [&[&str]; 4] = [
        &["replay", trace, "--capacity", "8", "--warmup", "16"],
        &["inspect", model],
        &["--help"],
        &["replay", "--help"],
    ];
    for arguments in commands {
        let output = |color: &[&str]| succeeds(moeslice().args(color).args(arguments));
        assert!(output(&["--color", "always"]).contains('\u{1b}'), "{arguments:?}");
        assert!(output(&["--color=always"]).contains('\u{1b}'), "{arguments:?}");
        for plain in [&["--color", "never"][..], &["--color=auto"], &[]] {
            assert!(!output(plain).contains('\u{1b}'), "{plain:?} {arguments:?}");
        }
    }
}

#[test]
fn speeds_are_modelled_of_a_trace_that_was_read_alone() {
    let folder = folder();
    let trace = write_trace(&folder, 0);
    let table = succeeds(
        replay(&trace)
            .args(["--memory", "1MiB", "--policy", "lru", "--warmup", "8", "--bandwidth", "10GB", "-m"])
            .arg(demo()),
    );
    assert!(table.contains("tokens/s prefill") && table.contains("a model, not a measurement"), "{table}");
}
