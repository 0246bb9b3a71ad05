//! What the command line names: a path, and the corpus that it belongs to.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file, a folder or a pipe, and the name of the corpus that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSource {
    /// The corpus.
    pub name: String,
    /// File, folder or pipe; `-` is standard input.
    pub path: PathBuf,
}

impl TextSource {
    /// `NAME=PATH`, or a path whose stem is the name. A path that exists as it stands is a path, `=` or not.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let equals = bytes.iter().position(|&byte| byte == b'=');
        let named = equals
            .map(|at| (&bytes[..at], &bytes[at + 1..]))
            .filter(|(name, _)| !name.is_empty() && !name.contains(&b'/') && !Path::new(text).exists());
        let shown = text.to_string_lossy();
        let (name, path) = match named {
            Some((name, path)) => {
                (String::from_utf8_lossy(name).into_owned(), PathBuf::from(OsStr::from_bytes(path)))
            }
            None => {
                let path = PathBuf::from(text);
                let name = stem(&path)
                    .ok_or_else(|| format!("{shown:?} gives no name for the corpus; write NAME={shown}"))?;
                (name, path)
            }
        };
        if path.as_os_str().is_empty() {
            return Err(format!("{shown:?} names no file or folder"));
        }
        if name.chars().any(char::is_control) {
            return Err(format!("{shown:?} gives a corpus a name with control characters; write NAME=PATH"));
        }
        Ok(TextSource { name, path })
    }

    /// Whether the text comes from standard input.
    pub fn is_stdin(path: &Path) -> bool {
        path == Path::new("-")
    }
}

fn stem(path: &Path) -> Option<String> {
    if TextSource::is_stdin(path) {
        return Some("stdin".to_owned());
    }
    // `.` and `..` have no stem of their own.
    let resolved = match path.file_stem() {
        None => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        Some(_) => path.to_owned(),
    };
    resolved.file_stem().map(|stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_named_by_prefix_or_stem() {
        let parse = |text: &str| TextSource::parse(OsStr::new(text)).unwrap();
        for (text, name, path) in [
            ("notes/dev.txt", "dev", "notes/dev.txt"),
            ("corpora/pm", "pm", "corpora/pm"),
            ("work=notes/dev.txt", "work", "notes/dev.txt"),
            ("a/b=c.txt", "b=c", "a/b=c.txt"),
            ("-", "stdin", "-"),
            ("log=-", "log", "-"),
            ("/dev/stdin", "stdin", "/dev/stdin"),
        ] {
            assert_eq!(parse(text), TextSource { name: name.into(), path: path.into() });
        }
        assert!(TextSource::parse(OsStr::new("work=")).is_err());
    }
}
