//! The terminal: data on stdout, remarks and progress on stderr.

pub mod failure;
pub mod output_files;
mod sparse;

use crate::json;
use crate::progress::{Progress, Unit};
use crate::report::TextStyle;
use crate::report::wording::turns_text;
use clap::ColorChoice;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;
use sparse::Sparse;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// What the user wants to see.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Nothing but errors and data.
    pub quiet: bool,
    /// Whether what is printed has colours.
    pub color: ColorChoice,
    /// Everything that may help to find a fault.
    #[cfg(feature = "llama")]
    pub verbose: bool,
}

/// Why data did not reach stdout.
#[derive(Debug)]
pub enum PrintError {
    /// Whoever read it has closed it.
    Closed,
    /// It could not be written.
    Failed(io::Error),
}

/// Writes `text` to stdout. Control characters, which may come from a file and steer a terminal, become spaces.
pub fn print(text: &str) -> Result<(), PrintError> {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    write(&text.chars().map(plain).collect::<String>())
}

/// Writes a report to stdout, with the colours of [`TextStyle`] and no other control characters.
pub fn print_styled(text: &str) -> Result<(), PrintError> {
    write(&styled(text))
}

/// Text of which the only escape sequences are those that set the look of letters.
fn styled(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let plain = |piece: &str| piece.replace(|c: char| c.is_control() && c != '\n' || turns_text(c), " ");
    let mut out = plain(pieces.next().unwrap_or_default());
    for piece in pieces {
        let numbers =
            piece.strip_prefix('[').and_then(|rest| rest.split_once('m')).map(|(numbers, _)| numbers);
        let sets_look = numbers.is_some_and(|numbers| ["0", "1", "2", "36"].contains(&numbers));
        out.push(if sets_look { '\u{1b}' } else { ' ' });
        out.push_str(&plain(piece));
    }
    out
}

fn write(text: &str) -> Result<(), PrintError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => PrintError::Closed,
        _ => PrintError::Failed(error),
    })
}

/// Writes `value` to stdout as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), PrintError> {
    write(&escaped(&json::to_text(value)))
}

/// JSON in which no control character stands as it is: JSON itself wants only those below the space escaped.
fn escaped(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut text, c| {
        match c {
            '\u{7f}'..='\u{9f}' => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => text.push(c),
        }
        text
    })
}

/// Writes a line to stderr. That nobody can read it any more is no reason to lose the work.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "moeslice: {}", one_line(text));
}

/// Text that came from files and names, made fit for a terminal: control characters become spaces.
fn one_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Console {
    /// Says something on stderr, unless quiet.
    pub fn remark(self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// How reports on stdout look: plain in a pipe, and on a terminal as wide as that and with colours, unless
    /// `NO_COLOR` is set or they are not wanted.
    pub fn style(self) -> TextStyle {
        let terminal = io::stdout().is_terminal();
        let colour = match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
                terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        };
        if terminal {
            let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
            return TextStyle::terminal(width.unwrap_or(TextStyle::default().width), colour);
        }
        TextStyle { colour, ..TextStyle::default() }
    }

    /// Says something on stderr that only those want to know who look for a fault.
    #[cfg(feature = "llama")]
    pub fn detail(self, text: &str) {
        if self.verbose {
            say(text);
        }
    }

    /// A progress bar on stderr; seldom a line when stderr is no terminal, and nothing when quiet. A supervised process tells its parent.
    pub fn progress(self) -> Box<dyn Progress> {
        #[cfg(feature = "llama")]
        if crate::supervise::supervisor().is_some() {
            return Box::new(crate::supervise::Reporter::default());
        }
        Box::new(self.bar())
    }

    /// A progress bar of this process.
    pub fn bar(self) -> Bar {
        Bar { quiet: self.quiet, bar: ProgressBar::hidden(), sparse: None }
    }
}

#[cfg(feature = "llama")]
impl crate::supervise::Screen for Bar {
    fn line(&mut self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{text}");
        });
    }
}

/// A progress bar, one stage at a time.
pub struct Bar {
    quiet: bool,
    bar: ProgressBar,
    /// What is told where no terminal shows the bar.
    sparse: Option<Sparse>,
}

impl Progress for Bar {
    fn begin(&mut self, stage: &str, unit: Unit) {
        if self.quiet {
            return;
        }
        if !io::stderr().is_terminal() {
            self.sparse = Some(Sparse::new(stage, unit, Instant::now()));
            return;
        }
        self.bar = ProgressBar::new(0);
        let counts = match unit {
            Unit::Tokens => "{human_pos}/{human_len} tokens  {rate}/s",
            Unit::Bytes => "{binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}",
            Unit::Percent => "{percent} %",
        };
        let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{:.0}", state.per_sec());
        };
        let template = format!("{{msg:<10!}} {{wide_bar}} {counts}  {{eta}} left");
        let style = ProgressStyle::with_template(&template).expect("the template is valid");
        self.bar.set_style(style.with_key("rate", rate).progress_chars("━╸ "));
        self.bar.set_message(stage.to_owned());
    }

    fn update(&mut self, done: u64, total: u64) {
        if let Some(line) = self.sparse.as_mut().and_then(|sparse| sparse.line((done, total), Instant::now()))
        {
            say(&line);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    fn name(&mut self, what: &str) {
        self.bar.set_message(one_line(what));
    }

    fn end(&mut self) {
        self.sparse = None;
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_in_json_and_replaced_elsewhere() {
        let name = "a\u{1b}[31m\u{9b}2J\u{7f}";
        let text = escaped(&json::to_text(&name));
        assert!(!text.trim_end().chars().any(char::is_control), "{text:?}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
        assert_eq!(one_line(name), "a [31m 2J ");
    }

    #[test]
    fn reports_keep_their_colours_and_no_other_escape() {
        assert_eq!(styled("\u{1b}[1mA\u{1b}[0m\n\u{1b}[36m▇"), "\u{1b}[1mA\u{1b}[0m\n\u{1b}[36m▇");
        assert_eq!(styled("a\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{1b}"), "a [2J ]0;x  31m ");
        assert_eq!(styled("a\u{202e}b שלום"), "a b שלום");
        assert_eq!(styled("\u{1b}[1;31mA"), " [1;31mA");
    }
}
