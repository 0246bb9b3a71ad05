//! Names of the outputs, and what is checked of them and of the sources.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::SliceError;
use crate::gguf::{GgufError, Model, parse_shard_name, shard_path};
use crate::sys::{FileId, folder_of};

/// The names of `count` files that make up `output`.
///
/// One file bears the name itself; several are `<output>-00001-of-0000N.gguf`, where `.gguf` at the end of the name is
/// dropped. A name that still ends as that of a shard, since it was made from the name of one, loses that ending.
pub fn output_paths(output: &Path, count: usize) -> Result<Vec<PathBuf>, SliceError> {
    let no_name = || SliceError::NoName { output: output.to_owned() };
    output.file_name().ok_or_else(no_name)?;
    let stale = parse_shard_name(output).map(|(prefix, ..)| prefix);
    if count == 1 {
        return Ok(vec![match stale {
            Some(prefix) => with_suffix(&prefix, b".gguf"),
            None => output.to_owned(),
        }]);
    }
    let prefix = stale.unwrap_or_else(|| match output.as_os_str().as_bytes().strip_suffix(b".gguf") {
        Some(prefix) if !prefix.is_empty() && !prefix.ends_with(b"/") => {
            OsString::from_vec(prefix.to_vec()).into()
        }
        _ => output.to_owned(),
    });
    let count = u16::try_from(count).map_err(|_| no_name())?;
    Ok((0..count).map(|index| shard_path(&prefix, index, count)).collect())
}

fn with_suffix(path: &Path, suffix: &[u8]) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.extend(suffix);
    OsString::from_vec(bytes).into()
}

/// The folder that the outputs go to, symbolic links followed.
pub(super) fn folder(paths: &[PathBuf]) -> Result<PathBuf, SliceError> {
    let Some(first) = paths.first() else { return Ok(PathBuf::from(".")) };
    Ok(folder_of(&std::fs::canonicalize(first).unwrap_or_else(|_| first.clone())))
}

/// Refuses an output that is a file of the model: by the same path, a hard link, a symbolic link or a bind mount.
pub(super) fn check_not_source(output: &Path, model: &Model) -> Result<(), SliceError> {
    // What cannot be looked at cannot be written either, which is found out next.
    let Ok(Some(id)) = FileId::of_path(output) else { return Ok(()) };
    for shard in model.shards() {
        let source = FileId::of_file(&shard.file).map_err(|source| read_error(&shard.path, source))?;
        if source == id {
            return Err(SliceError::SameFile { output: output.to_owned(), input: shard.path.clone() });
        }
    }
    Ok(())
}

/// Size and time of last change of a file of the model.
pub(super) type State = (u64, SystemTime);

/// The states of all files of the model.
pub(super) fn states(model: &Model) -> Result<Vec<State>, SliceError> {
    let state = |shard: &crate::gguf::Shard| {
        let metadata = shard.file.metadata()?;
        Ok((metadata.len(), metadata.modified()?))
    };
    model
        .shards()
        .iter()
        .map(|shard| state(shard).map_err(|source| read_error(&shard.path, source)))
        .collect()
}

/// Refuses a model that was written to since `before`: what was read of it may be half old and half new.
pub(super) fn check_unchanged(model: &Model, before: &[State]) -> Result<(), SliceError> {
    let now = states(model)?;
    match model.shards().iter().zip(before.iter().zip(&now)).find(|(_, (before, now))| before != now) {
        Some((shard, _)) => Err(SliceError::SourceChanged { path: shard.path.clone() }),
        None => Ok(()),
    }
}

fn read_error(path: &Path, error: std::io::Error) -> SliceError {
    SliceError::Model(GgufError::Read { path: path.to_owned(), what: "its state".to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(output: &str, count: usize) -> Vec<String> {
        let paths = output_paths(Path::new(output), count).unwrap();
        paths.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
    }

    #[test]
    fn single_file_has_the_given_name() {
        assert_eq!(names("a/out.gguf", 1), ["a/out.gguf"]);
        assert_eq!(names("out", 1), ["out"]);
    }

    #[test]
    fn shards_are_numbered() {
        assert_eq!(names("a/out.gguf", 2), ["a/out-00001-of-00002.gguf", "a/out-00002-of-00002.gguf"]);
        assert_eq!(names("out", 2), ["out-00001-of-00002.gguf", "out-00002-of-00002.gguf"]);
        assert_eq!(names("a/.gguf", 2)[0], "a/.gguf-00001-of-00002.gguf");
    }

    #[test]
    fn stale_shard_ending_is_removed() {
        assert_eq!(names("big-192e-00001-of-00013.gguf", 1), ["big-192e.gguf"]);
        assert_eq!(names("x/big-00002-of-00013.gguf", 2)[1], "x/big-00002-of-00002.gguf");
    }

    #[test]
    fn path_without_a_file_name_is_refused() {
        for path in ["", "/", "a/..", ".."] {
            assert!(matches!(output_paths(Path::new(path), 1), Err(SliceError::NoName { .. })), "{path}");
        }
    }
}
