//! Models that do not fit into memory, and what is said of them before they are loaded.

use crate::profile::text;
use crate::support::{demo, folder, moeslice, refuses, succeeds, write_usage};
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// 0.6 GiB to compute in, of a model of 4 MiB.
const LARGE: [&str; 6] = ["-c", "16384", "-b", "16384", "-ub", "16384"];

/// The program with 400 MiB of memory.
fn limited(command: &str, model: &Path) -> Command {
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -d 400000; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_moeslice"), command]);
    limited.args(["-q", "-dev", "none", "-t", "1"]).arg("-m").arg(model);
    limited
}

fn figures(command: &mut Command, rows: &str) -> Value {
    let found: Value = serde_json::from_str(&succeeds(command)).unwrap();
    found[rows].as_array().expect("rows").last().expect("the processor's").clone()
}

#[test]
fn every_command_that_runs_a_model_refuses_what_does_not_fit() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("t.txt"), text(usize::MAX).repeat(8)).unwrap();
    write_usage(Path::new(&at("u.json")), &demo(), |_, id| u64::from(id) + 1);
    let (texts, usage, output) = (["-f", &at("t.txt")], ["--usage", &at("u.json")], ["-o", &at("out")]);
    let keep = ["--keep", "8"];
    let cases: [(&str, Vec<&[&str]>); 7] = [
        ("profile", vec![&texts, &output]),
        ("run", vec![&texts, &keep, &output]),
        ("trace", vec![&texts, &output]),
        ("eval", vec![&texts]),
        ("eval", vec![&texts, &usage, &keep]),
        ("refine", vec![&texts, &usage, &keep, &output]),
        ("bench", vec![&["-p", "16384", "-n", "0"]]),
    ];
    for (command, arguments) in cases {
        let mut run = limited(command, &demo());
        if command == "bench" {
            run.args(&LARGE[2..]);
        } else {
            run.args(LARGE);
        }
        let words =
            ["do not fit into memory: CPU has 3", "to compute in", "a smaller -ub", "--no-memory-check"];
        refuses(run.args(arguments.concat()), 1, &words);
        assert!(!Path::new(&at("out")).exists());
    }
}

#[test]
fn what_is_lacking_most_is_told_with_the_flags_that_help() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), text(300)).unwrap();
    let refused = |flags: &[&str], words: &[&str]| {
        let mut run = limited("profile", &demo());
        run.args(flags).arg("-f").arg(folder.path().join("t.txt")).args(["-o", "-"]);
        refuses(&mut run, 1, words);
    };
    refused(
        &["-c", "1048576", "-b", "64", "-ub", "1"],
        &["1.00 GiB of keys and values", "has fewer keys and values"],
    );
    let outputs = ["-c", "131072", "-b", "131072", "-ub", "1", "-ctk", "q4_0", "-ctv", "q4_0", "--lm-head"];
    refused(&outputs, &["1.00 GiB of outputs", "a smaller -b leaves fewer outputs"]);
}

#[test]
fn memory_that_is_planned_is_what_llama_cpp_asks_for() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), text(300)).unwrap();
    let text = folder.path().join("t.txt");
    let planned = figures(limited("devices", &demo()).args(LARGE).arg("--json"), "rows");
    let outline = figures(
        limited("profile", &demo()).args(LARGE).args(["--dry-run", "--json", "-f"]).arg(&text),
        "memory",
    );
    for figure in ["weights", "mapped", "keys_values", "compute", "output", "needed"] {
        assert_eq!(planned[figure], outline[figure], "{figure}");
    }
    let compute = format!("{:.2} MiB", planned["compute"].as_f64().unwrap() / f64::from(1 << 20));
    let mut run = limited("profile", &demo());
    run.args(LARGE).args(["--no-memory-check", "-o", "-", "-f"]).arg(&text);
    refuses(&mut run, 1, &[&format!("{compute} were asked of CPU")]);
}

#[test]
fn devices_tells_what_a_model_takes_and_whether_it_fits() {
    let table = succeeds(moeslice().args(["devices", "-dev", "none", "-m"]).arg(demo()));
    for word in ["memory", "mapped", "keys and values", "CPU", "3.72 MiB"] {
        assert!(table.contains(word), "{word:?} is missing in {table}");
    }
    let of = |command: &mut Command| serde_json::from_str::<Value>(&succeeds(command)).unwrap();
    let fits = of(moeslice().args(["devices", "--json", "-dev", "none", "-lm", "none", "-m"]).arg(demo()));
    assert_eq!(fits["fits"], true);
    let row = &fits["rows"][0];
    assert_eq!((&row["device"], &row["mapped"]), (&"CPU".into(), &0.into()));
    assert!(row["weights"].as_u64().unwrap() > 3 << 20, "{row}");
    assert_eq!(of(limited("devices", &demo()).args(LARGE).arg("--json"))["fits"], false);
    refuses(moeslice().args(["devices", "-m", "none.gguf"]), 3, &["none.gguf"]);
}

#[test]
fn outputs_are_those_of_a_small_batch_or_none() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), text(300)).unwrap();
    let output = |flags: &[&str]| {
        let mut run = moeslice();
        run.args(["profile", "-q", "-dev", "none", "--dry-run", "--json", "-m"]).arg(demo()).args(flags);
        figures(run.arg("-f").arg(folder.path().join("t.txt")), "memory")["output"].as_u64().unwrap()
    };
    let (n_vocab, n_embd, float) = (2048, 128, 4);
    assert_eq!(output(&["--lm-head"]), 512 * n_vocab * float, "of one window, whatever -b says");
    assert_eq!(output(&["--lm-head", "-b", "64"]), 64 * n_vocab * float);
    assert_eq!(output(&[]), 2048 * n_embd * float, "no logits");
}

#[test]
fn base_counts_beside_its_model() {
    let folder = folder();
    let path = folder.path().join("t.txt");
    fs::write(&path, text(usize::MAX).repeat(8)).unwrap();
    let needed = |more: &[&std::ffi::OsStr]| {
        let mut run = limited("eval", &demo());
        let output = run.args(LARGE).arg("-f").arg(&path).args(more).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, rest) = stderr.split_once("free, and ").unwrap_or_else(|| panic!("{stderr}"));
        let (number, unit) = rest.split_once(' ').unwrap();
        let mebibytes = if unit.starts_with("GiB") { 1024.0 } else { 1.0 };
        number.parse::<f64>().unwrap() * mebibytes
    };
    let (alone, both) = (needed(&[]), needed(&["--base".as_ref(), demo().as_os_str()]));
    assert!((both / alone - 2.0).abs() < 0.01, "{alone} and {both} MiB");
}
