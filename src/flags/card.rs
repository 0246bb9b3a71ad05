//! The model card that goes beside a pruned file.

use super::output::{CutFlags, CutReport};
use super::page::command_line;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::evaluate::Evaluation;
use crate::moe::MoeModel;
use crate::plan::{Coverages, Plan};
use crate::report::shell_word;
use crate::report::{Card, StabilityRow};
use crate::sys::folder_of;
use std::path::{Path, PathBuf};

/// The name of a model card on model hubs.
const NAME: &str = "README.md";

/// What is known of a cut.
pub struct CardSubject<'a> {
    pub model: &'a MoeModel,
    pub plan: &'a Plan,
    pub coverages: Option<&'a Coverages>,
    pub stability: Option<&'a StabilityRow>,
    pub measured: Option<&'a Evaluation>,
}

/// Where the card of a cut goes.
fn path(cut: &CutFlags) -> PathBuf {
    folder_of(&cut.output).join(NAME)
}

/// Refuses a card that could not be written.
pub fn check(cut: &CutFlags, outputs: &mut OutputFiles) -> Result<(), Failure> {
    outputs.add_small(&path(cut), cut.force)
}

/// A word of the command line for strangers: an absolute path becomes a name, for they have other folders.
fn without_folders(word: &str) -> String {
    let (before, path) = match word.split_once('=') {
        Some((name, path)) if path.starts_with('/') => (format!("{name}="), path),
        _ => (String::new(), word),
    };
    match Path::new(path).file_name().filter(|_| path.starts_with('/')) {
        Some(name) => before + &name.to_string_lossy(),
        None => word.to_owned(),
    }
}

/// Writes the card beside the pruned file.
pub fn write(
    cut: &CutFlags,
    subject: &CardSubject<'_>,
    written: &CutReport,
    console: Console,
) -> Result<(), Failure> {
    let name = |file: &String| {
        let path = Path::new(file);
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    };
    let files: Vec<String> = written.files.iter().map(name).collect();
    let command: Vec<String> = command_line().iter().map(|word| shell_word(&without_folders(word))).collect();
    let CardSubject { model, plan, coverages, stability, measured } = *subject;
    let card = Card {
        model,
        plan,
        files: &files,
        bytes: (written.bytes_before, written.bytes),
        verified: written.verify_seconds.is_some(),
        coverages,
        stability,
        measured,
        command: &command.join(" "),
    };
    let path = path(cut);
    write_small(&path, card.text().as_bytes(), cut.force, console)?;
    console.remark(&format!("wrote {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_for_strangers_has_no_folders_of_ours() {
        let words = ["-m", "/home/ada/m.gguf", "dev=/home/ada/src", "src/a.rs", "--keep=75%", "/"];
        assert_eq!(words.map(without_folders), ["-m", "m.gguf", "dev=src", "src/a.rs", "--keep=75%", "/"]);
    }
}
