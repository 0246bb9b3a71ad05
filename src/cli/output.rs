//! What commands print: data to stdout, remarks and progress to stderr.

use super::failure::Failure;
use crate::json;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;
use std::io::{self, Write};

/// Writes `text` to stdout. A reader that has gone away ends the command, as a success.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::running(anyhow::anyhow!("cannot write to stdout: {error}")),
    })
}

/// Writes `value` to stdout as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&json::to_text(value))
}

/// Says something on stderr, unless `quiet`.
pub fn remark(quiet: bool, text: &str) {
    if !quiet {
        say(text);
    }
}

/// Writes a line to stderr. That nobody can read it any more is no reason to lose the work.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "moeslice: {}", one_line(text));
}

/// Text that came from files and names, made fit for a terminal: control characters become spaces.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A progress bar over `total` of `what`, on stderr; hidden when stderr is no terminal or `quiet`.
pub fn progress(quiet: bool, total: u64, what: Unit) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let counts = match what {
        #[cfg(feature = "llama")]
        Unit::Tokens => "{human_pos}/{human_len} tokens  {rate}/s",
        Unit::Bytes => "{binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}",
        #[cfg(feature = "llama")]
        Unit::Percent => "{percent} %",
    };
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{:.0}", state.per_sec());
    };
    let template = format!("{{msg:<10!}} {{wide_bar}} {counts}  {{eta}} left");
    let style = ProgressStyle::with_template(&template).expect("the template is valid");
    bar.set_style(style.with_key("rate", rate).progress_chars("━╸ "));
    bar
}

/// What a progress bar counts.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// Tokens through the model.
    #[cfg(feature = "llama")]
    Tokens,
    /// Bytes of files.
    Bytes,
    /// A share.
    #[cfg(feature = "llama")]
    Percent,
}
