//! Work in a child process, which llama.cpp may end with an assertion.

use std::process::{Command, Stdio};

/// Tells a test that it is the child, and what to do.
pub const TASK: &str = "MOESLICE_TEST_TASK";

/// What to do in this process, when it is a child.
pub fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// Runs the test `test` of this binary in a child process with `task`; returns what it printed.
///
/// # Errors
/// What it printed, and how it ended, when it did not end well.
pub fn run(test: &str, task: &str, env: &[(&str, &str)]) -> Result<String, String> {
    let program = std::env::current_exe().expect("the test binary");
    let output = Command::new(program)
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env("RUST_BACKTRACE", "0")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the test binary starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() && out.contains("1 passed") {
        return Ok(out);
    }
    Err(format!("{task}: {}\n{out}\n{err}", output.status))
}
