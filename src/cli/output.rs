//! What commands print: data to stdout, remarks and progress to stderr.

use super::failure::Failure;
use crate::json;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

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

/// A table for people: columns after the first are numbers, and stand to the right.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    if !io::stdout().is_terminal() {
        // A pipe has no width: lines are not wrapped.
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    text = text.strip_prefix('\n').map(str::to_owned).unwrap_or(text);
    text
}

/// A number of bytes for people, in powers of 1024.
pub fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
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
