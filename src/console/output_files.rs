//! What a command is about to write: checked before the long work, against what it reads, and against each other.

use super::Console;
use super::failure::Failure;
use crate::sys::{self, FileError, FileId, Leftovers, folder_of};
use crate::units::ByteCount;
use std::path::{Path, PathBuf};

/// The outputs of a command.
#[derive(Default)]
pub struct OutputFiles {
    places: Vec<(PathBuf, PathBuf)>,
}

impl OutputFiles {
    /// Checks that a small output (a usage file, a plan) can be written, and adds it.
    pub fn add_small(&mut self, path: &Path, force: bool) -> Result<(), Failure> {
        let target = sys::check_target(path, force).map_err(output_failure)?;
        self.add(path, &target)
    }

    /// Adds an output that is checked elsewhere.
    pub fn add(&mut self, path: &Path, target: &Path) -> Result<(), Failure> {
        let folder = folder_of(target);
        let folder = folder.canonicalize().unwrap_or(folder);
        let place = folder.join(target.file_name().unwrap_or_default());
        if let Some((other, _)) = self.places.iter().find(|(_, other)| *other == place) {
            let (path, other) = (path.display(), other.display());
            return Err(Failure::arguments(format!(
                "{path} and {other} are the same file: two outputs need two names"
            )));
        }
        self.places.push((path.to_owned(), place));
        Ok(())
    }

    /// Refuses an output that is one of the `inputs`, by whatever name: no `--force` is meant to destroy an input.
    pub fn check_inputs<'p>(&self, inputs: impl IntoIterator<Item = &'p Path>) -> Result<(), Failure> {
        let identity = |path: &Path| FileId::of_path(path).ok().flatten();
        let taken: Vec<_> =
            self.places.iter().filter_map(|(path, place)| Some((path, identity(place)?))).collect();
        for input in inputs {
            let Some(id) = identity(input) else { continue };
            if let Some((path, _)) = taken.iter().find(|(_, other)| *other == id) {
                let (path, input) = (path.display(), input.display());
                return Err(Failure::arguments(format!(
                    "{path} is {input}, an input: choose another output"
                )));
            }
        }
        Ok(())
    }
}

/// Writes a small output, whole or not at all.
pub fn write_small(path: &Path, bytes: &[u8], force: bool, console: Console) -> Result<(), Failure> {
    let leftovers = sys::write_atomic(path, bytes, force).map_err(output_failure)?;
    #[cfg(feature = "llama")]
    crate::supervise::tell_kept(path);
    tell_leftovers(&leftovers, console);
    Ok(())
}

/// Says what killed runs had left in the folder of an output, and what of it is still there.
pub fn tell_leftovers(leftovers: &Leftovers, console: Console) {
    if leftovers.removed > 0 {
        let (files, bytes) = (leftovers.removed, ByteCount(leftovers.bytes));
        console.remark(&format!("removed what killed runs left here: {files} hidden files of {bytes}"));
    }
    if leftovers.rolled_back > 0 {
        console.remark("took back a group of files that a killed run had put in place in part");
    }
    for left in &leftovers.left {
        console.remark(&left.to_string());
    }
}

/// An output that is in the way, or no place for a file, is a matter of the arguments; all else failed while running.
pub fn output_failure(error: FileError) -> Failure {
    match error {
        error @ (FileError::Exists { .. } | FileError::NotAFile { .. } | FileError::NoFolder { .. }) => {
            Failure::Arguments(error.into())
        }
        error => Failure::running(error),
    }
}
