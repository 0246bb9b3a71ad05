//! A child that hangs, dies or is interrupted, and what its parent makes of it.

use crate::support::{demo, folder, moeslice, refuses, repository, variant};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A profile that runs for a long time, at `-t 1`, with its stderr at hand.
fn long_profile(folder: &Path, more: &[&str]) -> Child {
    long("profile", folder, more)
}

fn long(command: &str, folder: &Path, more: &[&str]) -> Child {
    let text: String = ["dev", "pm", "family"]
        .iter()
        .flat_map(|corpus| fs::read_dir(repository("corpora").join(corpus)).unwrap())
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    fs::write(folder.join("text.txt"), text.repeat(20)).unwrap();
    // A shell starts its background jobs with interrupts ignored, and so the tests in them; the program respects that.
    let mut run = Command::new("env");
    run.args(["--default-signal=INT", env!("CARGO_BIN_EXE_moeslice"), command]);
    run.args(["-dev", "none", "-t", "1", "-c", "64", "-b", "64", "-m"]).arg(demo());
    run.arg("-f").arg(folder.join("text.txt")).arg("-o").arg(folder.join("u.json")).args(more);
    run.stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// The process that `parent` supervises, once it computes: it has used so many ticks of the processor.
fn child_of(parent: &Child) -> u32 {
    let list = format!("/proc/{0}/task/{0}/children", parent.id());
    let begin = Instant::now();
    loop {
        let children = fs::read_to_string(&list).unwrap_or_default();
        if let Some(pid) = children.split_whitespace().next() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let ticks: u64 = fields.get(11).and_then(|ticks| ticks.parse().ok()).unwrap_or(0);
            if ticks > 60 {
                return pid.parse().unwrap();
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "no child computes");
        sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// Exit code and stderr of a process.
fn end(mut process: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (process.wait().unwrap().code(), text)
}

fn is_gone(pid: u32) -> bool {
    let gone = || !Path::new(&format!("/proc/{pid}/stat")).exists();
    (0..200).any(|_| {
        gone() || {
            sleep(Duration::from_millis(20));
            false
        }
    })
}

#[test]
fn stopped_child_ends_command_with_code_4_and_is_killed() {
    let folder = folder();
    let parent = long_profile(folder.path(), &["--stall-timeout", "10"]);
    let child = child_of(&parent);
    signal(child, "STOP");
    let (code, stderr) = end(parent);
    assert_eq!(code, Some(4), "{stderr}");
    for part in [
        "nothing has gone on for",
        "while",
        &format!("process {child}"),
        "stopped by a signal",
        "-ub 64",
        "no file was written",
    ] {
        assert!(stderr.contains(part), "{part:?} is missing in {stderr}");
    }
    assert!(is_gone(child) && !folder.path().join("u.json").exists());
}

#[test]
fn stalled_trace_says_what_is_kept() {
    let folder = folder();
    let part = folder.path().join("u.json.part");
    let parent = long("trace", folder.path(), &["--stall-timeout", "5"]);
    let child = child_of(&parent);
    let begin = Instant::now();
    while fs::metadata(&part).map_or(0, |found| found.len()) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(120), "nothing is recorded");
        sleep(Duration::from_millis(20));
    }
    signal(child, "STOP");
    let (code, stderr) = end(parent);
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains(&format!("what was finished is kept: {}", part.display())), "{stderr}");
    assert!(stderr.contains("while recording") && !stderr.contains("llama_"), "{stderr}");
}

#[test]
fn killed_child_is_one_error_with_code_1() {
    let folder = folder();
    let parent = long_profile(folder.path(), &["-q"]);
    signal(child_of(&parent), "KILL");
    let (code, stderr) = end(parent);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("SIGKILL") && stderr.contains("profiling"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn interrupted_parent_ends_its_child_and_leaves_nothing() {
    for name in ["INT", "TERM"] {
        let folder = folder();
        let parent = long_profile(folder.path(), &[]);
        let child = child_of(&parent);
        signal(parent.id(), name);
        let (code, stderr) = end(parent);
        assert_eq!(code, Some(130), "{stderr}");
        assert!(stderr.contains("interrupted"), "{stderr}");
        assert!(is_gone(child));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the text alone is left");
    }
}

#[test]
fn stopped_child_does_not_hold_up_an_interrupt() {
    let folder = folder();
    let parent = long_profile(folder.path(), &[]);
    let child = child_of(&parent);
    signal(child, "STOP");
    signal(parent.id(), "INT");
    sleep(Duration::from_millis(200));
    signal(parent.id(), "INT");
    let (code, stderr) = end(parent);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(is_gone(child), "a second interrupt kills it");
}

#[test]
#[cfg(target_os = "linux")]
fn killed_parent_takes_its_child_along() {
    let folder = folder();
    let mut parent = long_profile(folder.path(), &[]);
    let child = child_of(&parent);
    parent.kill().unwrap();
    assert_eq!(parent.wait().unwrap().signal(), Some(9));
    assert!(is_gone(child));
}

#[test]
fn failed_assertion_of_llama_cpp_is_one_error() {
    let folder = folder();
    let model = folder.path().join("odd.gguf");
    variant(&model, |metadata, _| metadata.set("qwen3moe.rope.dimension_count", 16_u32));
    fs::write(folder.path().join("t.txt"), "some words to read").unwrap();
    let mut command = moeslice();
    command.args(["profile", "-dev", "none", "-m"]).arg(&model).arg("-f").arg(folder.path().join("t.txt"));
    command.arg("-o").arg(folder.path().join("u.json"));
    refuses(&mut command, 1, &["llama.cpp gave up", "GGML_ASSERT"]);
}

#[test]
fn memory_beyond_a_limit_is_an_error_and_not_a_crash() {
    let folder = folder();
    fs::write(folder.path().join("t.txt"), "some words to read").unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -v 1500000; exec \"$@\"").arg("sh").arg(env!("CARGO_BIN_EXE_moeslice"));
    command
        .args([
            "profile",
            "-q",
            "-dev",
            "none",
            "-t",
            "1",
            "-c",
            "4194304",
            "--lm-head",
            "--no-memory-check",
            "-m",
        ])
        .arg(demo());
    command.arg("-f").arg(folder.path().join("t.txt")).arg("-o").arg(folder.path().join("u.json"));
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error:") && !stderr.contains("panicked"), "{stderr}");
    assert!(!folder.path().join("u.json").exists());
}
