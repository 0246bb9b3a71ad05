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
    // A ubatch that begins within the warm-up belongs to it, so a trace can be longer and have nothing after it.
    let other = crate::support::folder();
    let read = write_trace(&other, 0);
    refuses(replay(&read).args(["--capacity", "8", "--warmup", "40"]), 3, &["64 tokens", "begins after"]);
    refuses(replay(&trace).args(["--capacity", "8", "--lambda", "1e308"]), 2, &["from 0 to 1000000"]);
    refuses(
        replay(&trace).args(["--capacity", "8", "--policy", "static", "--warmup", "0"]),
        2,
        &["during the warm-up"],
    );
    refuses(replay(&trace).args(["--curve", "--prefetch", "staging:2"]), 2, &["--capacity", "--memory"]);
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

    let advice = json_of(replay(&trace).arg("-m").arg(demo()).args(["--memory", "2MiB", "--advise"]));
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

#[test]
fn advice_refuses_the_flags_that_it_would_not_follow() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let flags: [&[&str]; 7] = [
        &["--policy", "arc"],
        &["--carry"],
        &["--warmup", "5"],
        &["--one-by-one"],
        &["--bandwidth", "1GB"],
        &["--delta", "token"],
        &["--top-j", "2"],
    ];
    for flags in flags {
        let mut command = replay(&trace);
        command.args(["--memory", "1MiB", "--advise", "-m"]).arg(demo()).args(flags);
        refuses(&mut command, 2, &["--advise", flags[0]]);
    }
}

#[test]
fn advice_names_the_model_that_was_given_as_a_shell_takes_it() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let model = folder.path().join("my model.gguf");
    fs::copy(demo(), &model).unwrap();
    let advice = json_of(replay(&trace).args(["--memory", "1MiB", "--advise", "-m"]).arg(&model));
    let flags = advice["rows"][0]["flags"].as_str().unwrap();
    assert!(flags.contains(&format!("-m '{}' -f", model.display())), "{flags}");
}

#[test]
fn policy_that_learns_is_left_out_where_there_is_no_warm_up() {
    let folder = folder();
    let trace = write_trace(&folder, 100);
    let output = replay(&trace).args(["--capacity", "8", "--warmup", "0"]).output().unwrap();
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("static") && said.contains("left out"), "{said}");
    assert!(table.contains("slru") && !table.contains("static"), "{table}");
}

#[test]
fn fetching_ahead_serves_single_tokens_and_says_when_there_are_none() {
    let folder = folder();
    let trace = write_trace(&folder, 0);
    let arguments =
        ["--capacity", "8", "--policy", "lru", "--warmup", "8", "--prefetch", "staging:2", "--json"];
    let output = replay(&trace).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nothing is fetched ahead") && said.contains("--one-by-one"), "{said}");
    let ubatches: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ubatches["rows"][0]["prefetch"]["fetched"], 0);
    let output = replay(&trace).args(arguments).arg("--one-by-one").output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("fetched ahead"));
    let single: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(single["rows"][0]["prefetch"]["useful"].as_u64() > Some(0), "{single}");
    assert!(single["rows"][0]["staged"].as_u64() > Some(0), "{single}");
}

#[test]
fn text_trace_of_a_spreadsheet_is_read_and_one_of_no_numbers_is_not() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let trace = write_trace(&folder, 100);
    let text = fs::read_to_string(&trace).unwrap();
    fs::write(at("marked.csv"), format!("\u{feff}{}", text.replace('\n', "\r\n"))).unwrap();
    let misses = |path: &Path| json_of(replay(path).args(["--capacity", "8"]))["rows"][0]["misses"].clone();
    assert_eq!(misses(&at("marked.csv")), misses(&trace));
    let header = "layer,experts,used,values,z_min,z_mean,z_std\n0,1 2,1,3 1,0,1,1\n";
    for (name, line, part) in [
        ("nan.csv", "0,2 1,1,2 nan,0,1,1", "token 1: layer 0: the router value of expert 1 is NaN"),
        ("inf.csv", "0,2 1,1,inf 1,0,1,1", "token 1: layer 0: the router value of expert 2 is inf"),
        ("z.csv", "0,2 1,1,2 1,-inf,1,1", "token 1: layer 0: z_min is -inf"),
    ] {
        fs::write(at(name), format!("{header}{line}\n")).unwrap();
        let mut command = replay(&at(name));
        refuses(command.args(["--capacity", "8", "--policy", "lru", "--lambda", "0.1"]), 3, &[part]);
    }
}

#[cfg(unix)]
#[test]
fn pipe_without_a_writer_is_refused_and_not_waited_for() {
    let folder = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut command = replay(&pipe);
    command.timeout(std::time::Duration::from_secs(60));
    refuses(command.args(["--capacity", "8"]), 3, &["not a regular file"]);
}
