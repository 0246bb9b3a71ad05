//! Long measurements that the user ends: what was finished stays.

use crate::support::{demo, folder, json, moeslice, repository, succeeds};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SETTINGS: [&str; 6] = ["-dev", "none", "-t", "1", "-c", "128"];

/// A command that can be interrupted, with its output at hand: a shell starts its background jobs, and so the tests in
/// them, with interrupts ignored.
fn spawn(command: &str, usage: &Path, more: &[&str]) -> Child {
    let mut process = Command::new("env");
    process.args(["--default-signal=INT", env!("CARGO_BIN_EXE_moeslice"), command]).args(SETTINGS);
    process.arg("-m").arg(demo()).arg("-f").arg(repository("corpora/dev")).arg("--usage").arg(usage);
    process.args(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

fn interrupt(process: &Child) {
    assert!(Command::new("kill").args(["-s", "INT", &process.id().to_string()]).status().unwrap().success());
}

/// Lines up to the first that is `wanted`.
fn lines_until(from: &mut impl BufRead, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).expect("text") > 0, "it ended too early: {lines:?}");
        let is_wanted = wanted(&line);
        lines.push(line);
        if is_wanted {
            return lines;
        }
    }
}

fn profile(usage: &Path) {
    let mut command = moeslice();
    command.arg("profile").args(SETTINGS).arg("-m").arg(demo()).arg("-f").arg(repository("corpora/dev"));
    succeeds(command.args(["--chunks", "24", "-o"]).arg(usage));
}

/// The first column of the rows of a sweep's table.
fn numbers(table: &[String]) -> Vec<u64> {
    table.iter().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn interrupted_sweep_keeps_the_rows_that_it_has_shown() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    profile(&at("u.json"));
    let keep: Vec<String> = (4..32).rev().map(|k| k.to_string()).collect();
    let output = at("e.json").display().to_string();
    let mut process = spawn("eval", &at("u.json"), &["--keep", &keep.join(","), "-o", &output]);
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut table = lines_until(&mut stdout, |line| line.split_whitespace().next() == Some("30"));
    interrupt(&process);
    table.extend(stdout.lines().map(Result::unwrap));
    let mut stderr = String::new();
    process.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130), "{stderr}");
    let shown = numbers(&table);
    assert!(shown.starts_with(&[32, 31, 30]) && shown.len() < 20, "{table:?}");
    assert!(stderr.contains(&format!("the {} rows that were finished are kept", shown.len())), "{stderr}");
    let written = json(&at("e.json"));
    let rows: Vec<u64> =
        written["rows"].as_array().unwrap().iter().map(|row| row["k"].as_u64().unwrap()).collect();
    assert_eq!(rows, shown);
    assert!(written["rows"][2]["all"]["kl"]["kl_mean"].as_f64().unwrap() > 0.0, "{written}");
}

/// The kept experts of a plan, once the file is there and whole.
fn plan_at(path: &Path) -> Value {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} never appears", path.display());
        sleep(Duration::from_millis(10));
    }
    json(path)
}

/// How many of the kept experts of one plan another does not keep.
fn differences(a: &Value, b: &Value) -> usize {
    let kept = |plan: &Value, layer: &str| plan["keep"][layer].as_array().unwrap().clone();
    let layers = a["keep"].as_object().unwrap().keys();
    layers
        .map(|layer| {
            let other = kept(b, layer);
            assert_eq!(other.len(), 12);
            kept(a, layer).iter().filter(|id| !other.contains(id)).count()
        })
        .sum()
}

#[test]
fn interrupted_refine_writes_the_best_plan_so_far_and_keeps_each_step_until_then() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    profile(&at("u.json"));
    let mut plan = moeslice();
    plan.arg("plan").arg(at("u.json")).arg("-m").arg(demo()).args(["--keep", "12", "--score", "frequency"]);
    succeeds(plan.arg("-o").arg(at("start.json")));
    let output = at("p.json").display().to_string();
    let more = ["--chunks", "12", "--keep", "12", "--score", "frequency", "--minutes", "10", "-o", &output];
    let mut process = spawn("refine", &at("u.json"), &more);
    let mut stderr = BufReader::new(process.stderr.take().unwrap());
    let told = lines_until(&mut stderr, |line| line.contains("trial ") && line.contains("mean KL"));
    let step = plan_at(&at("p.json.checkpoint"));
    assert_eq!(step["score"], "frequency+refined");
    let start = json(&at("start.json"));
    assert!(differences(&start, &step) > 0, "{told:?}");
    assert!(!at("p.json").exists(), "the search goes on");
    interrupt(&process);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("p.json holds the best plan so far"), "{rest}");
    assert!(!at("p.json.checkpoint").exists());
    let best = json(&at("p.json"));
    assert!(differences(&start, &best) > 0, "{best}");
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--plan").arg(at("p.json")).arg("-o").arg(at("cut.gguf"));
    assert!(succeeds(&mut prune).contains("32 → 12 a layer"));
    assert!(fs::metadata(at("cut.gguf")).unwrap().len() > 0);
}
