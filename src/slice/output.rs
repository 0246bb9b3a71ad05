//! Names of the outputs, and what is checked of them and of the sources.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::SliceError;
use crate::gguf::{GgufError, Model, parse_shard_name, shard_path};
use crate::sys::{FileId, folder_of};

/// The names of `count` files that make up `output`.
///
/// One file bears the name itself; several are `<output>-00001-of-0000N.gguf`, where `.gguf` at the end of the name is
/// dropped. A name that says which shard it is has to be that of the first, of as many as there will be.
pub fn output_paths(output: &Path, count: usize) -> Result<Vec<PathBuf>, SliceError> {
    let no_name = || SliceError::NoName { output: output.to_owned() };
    output.file_name().ok_or_else(no_name)?;
    let stated = parse_shard_name(output);
    if let Some((prefix, index, of)) = &stated
        && (*index, usize::from(*of)) != (0, count)
    {
        let mut name = prefix.clone().into_os_string();
        name.push(".gguf");
        return Err(SliceError::ShardName { output: output.to_owned(), count, name: name.into() });
    }
    if count == 1 {
        return Ok(vec![output.to_owned()]);
    }
    let prefix = stated.map_or_else(|| prefix_of(output), |(prefix, ..)| prefix);
    let count = u16::try_from(count).map_err(|_| no_name())?;
    Ok((0..count).map(|index| shard_path(&prefix, index, count)).collect())
}

/// A name without the `.gguf` at its end.
fn prefix_of(path: &Path) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b".gguf") {
        Some(prefix) if !prefix.is_empty() && !prefix.ends_with(b"/") => {
            OsString::from_vec(prefix.to_vec()).into()
        }
        _ => path.to_owned(),
    }
}

/// Files beside `written` whose names make them look like a part of it: shards of another run under the same name, or
/// the single file of one. The files of `model` are none.
pub(super) fn beside(written: &[PathBuf], model: &Model) -> Vec<PathBuf> {
    let Some(first) = written.first() else { return Vec::new() };
    let prefix = parse_shard_name(first).map_or_else(|| prefix_of(first), |(prefix, ..)| prefix);
    let own: HashSet<&OsStr> = written.iter().filter_map(|path| path.file_name()).collect();
    let sources: HashSet<FileId> =
        model.shards().iter().filter_map(|shard| FileId::of_file(&shard.file).ok()).collect();
    let folder = folder_of(first);
    let looks_alike = |path: &Path| match parse_shard_name(path) {
        Some((other, ..)) => other.file_name() == prefix.file_name(),
        None => {
            path.extension() == Some(OsStr::new("gguf")) && prefix_of(path).file_name() == prefix.file_name()
        }
    };
    // A folder that cannot be listed hides what lies in it from everybody.
    let entries = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<PathBuf> = entries
        .map(|entry| folder.join(entry.file_name()))
        .filter(|path| looks_alike(path) && path.file_name().is_some_and(|name| !own.contains(name)))
        .filter(|path| !FileId::of_path(path).is_ok_and(|id| id.is_some_and(|id| sources.contains(&id))))
        .collect();
    found.sort();
    found
}

/// Refuses outputs that are files of the model: by the same path, a hard link, a symbolic link or a bind mount.
pub(super) fn check_not_source(outputs: &[PathBuf], model: &Model) -> Result<(), SliceError> {
    let mut sources = HashMap::new();
    for shard in model.shards() {
        let id = FileId::of_file(&shard.file).map_err(|error| read_error(&shard.path, error))?;
        sources.insert(id, &shard.path);
    }
    for output in outputs {
        // What cannot be looked at cannot be written either, which is found out next.
        let Ok(Some(id)) = FileId::of_path(output) else { continue };
        if let Some(&input) = sources.get(&id) {
            return Err(SliceError::SameFile { output: output.clone(), input: input.clone() });
        }
    }
    Ok(())
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
    fn output_name_of_a_shard_is_kept_or_refused() {
        assert_eq!(names("x/big-00001-of-00001.gguf", 1), ["x/big-00001-of-00001.gguf"]);
        assert_eq!(names("x/big-00001-of-00002.gguf", 2)[1], "x/big-00002-of-00002.gguf");
        for (output, count) in [
            ("big-00001-of-00013.gguf", 1),
            ("big-00002-of-00002.gguf", 2),
            ("big-00001-of-00003.gguf", 2),
            ("big-00001-of-00001.gguf", 2),
        ] {
            let error = output_paths(Path::new(output), count).unwrap_err();
            assert!(matches!(&error, SliceError::ShardName { name, .. } if name == "big.gguf"), "{error}");
        }
    }

    #[test]
    fn path_without_a_file_name_is_refused() {
        for path in ["", "/", "a/..", ".."] {
            assert!(matches!(output_paths(Path::new(path), 1), Err(SliceError::NoName { .. })), "{path}");
        }
    }
}
