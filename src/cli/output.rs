//! What commands print: data to stdout, remarks and progress to stderr.

use super::failure::Failure;
use crate::json;
use indicatif::{ProgressBar, ProgressStyle};
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
        eprintln!("moeslice: {text}");
    }
}

/// A progress bar over `total` of `what`, on stderr; hidden when stderr is no terminal or `quiet`.
pub fn progress(quiet: bool, total: u64, what: Unit) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(total);
    let counts = match what {
        #[cfg(feature = "llama")]
        Unit::Tokens => "{human_pos}/{human_len} tokens  {per_sec:.0}",
        Unit::Bytes => "{binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}",
        #[cfg(feature = "llama")]
        Unit::Percent => "{percent} %",
    };
    let template = format!("{{msg:<12}} {{bar:30}} {counts}  {{eta}} left");
    bar.set_style(
        ProgressStyle::with_template(&template).expect("the template is valid").progress_chars("━╸ "),
    );
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
