//! Plain text: in memory when it is small or cannot be read again, else in its file.

use super::bytes::{BOM, Check};
use super::error::CorpusError;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files up to this size are kept in memory.
const SMALL: u64 = 1 << 20;

/// Bytes that are read at once.
const PIECE: usize = 1 << 18;

/// A text, without a byte order mark. It is read in pieces, however large it is.
#[derive(Clone, Debug)]
pub struct PlainText(Place);

#[derive(Clone, Debug)]
enum Place {
    Memory(String),
    File { path: PathBuf, state: FileState },
}

/// What tells that a file is still the one that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileState {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileState {
    fn new(metadata: &Metadata) -> Self {
        FileState { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

/// A text as it was found: its size, its hash, and where it is kept.
pub(super) struct Found {
    pub bytes: u64,
    pub sha256: String,
    pub text: PlainText,
}

impl From<String> for PlainText {
    fn from(text: String) -> Self {
        PlainText(Place::Memory(text))
    }
}

impl PlainText {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Place::Memory(text) => text.is_empty(),
            Place::File { .. } => false,
        }
    }

    /// A reader from its beginning.
    ///
    /// # Errors
    /// When the file cannot be opened any more, or is another one.
    pub fn reader(&self) -> Result<PlainReader<'_>, CorpusError> {
        match &self.0 {
            Place::Memory(text) => Ok(PlainReader { source: Source::Memory(text), open: Vec::new() }),
            Place::File { path, state } => {
                let failed = |source| CorpusError::Read { path: path.clone(), source };
                let mut file = File::open(path).map_err(failed)?;
                if FileState::new(&file.metadata().map_err(failed)?) != *state {
                    return Err(CorpusError::Changed { path: path.clone() });
                }
                let mut open = Vec::new();
                file.by_ref().take(BOM.len() as u64).read_to_end(&mut open).map_err(failed)?;
                if open == BOM {
                    open.clear();
                }
                Ok(PlainReader { source: Source::File { file, path, state }, open })
            }
        }
    }

    /// Checks the text in `path` and finds a place for it; `None` for the text when it is not UTF-8.
    pub(super) fn find(path: &Path, metadata: &Metadata) -> io::Result<Result<Found, String>> {
        let mut file = File::open(path)?;
        if !metadata.is_file() || metadata.len() <= SMALL {
            return Self::keep(file);
        }
        let state = FileState::new(&file.metadata()?);
        let mut check = Check::default();
        let mut piece = vec![0; PIECE];
        loop {
            let n = read_some(&mut file, &mut piece)?;
            if n == 0 {
                break;
            }
            if let Err(what) = check.take(&piece[..n]) {
                return Ok(Err(what));
            }
        }
        let text = PlainText(Place::File { path: path.to_owned(), state });
        Ok(check.finish().map(|(bytes, sha256)| Found { bytes, sha256, text }))
    }

    /// Reads all of `source` into memory.
    pub(super) fn keep(mut source: impl Read) -> io::Result<Result<Found, String>> {
        let mut check = Check::default();
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE];
        loop {
            let n = read_some(&mut source, &mut piece)?;
            if n == 0 {
                break;
            }
            if let Err(what) = check.take(&piece[..n]) {
                return Ok(Err(what));
            }
            bytes.extend_from_slice(&piece[..n]);
        }
        Ok(check.finish().and_then(|(n_bytes, sha256)| {
            if bytes.starts_with(BOM) {
                bytes.drain(..BOM.len());
            }
            let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
            Ok(Found { bytes: n_bytes, sha256, text: text.into() })
        }))
    }

    /// The whole text.
    pub(super) fn into_text(self) -> Result<String, CorpusError> {
        if let Place::Memory(text) = self.0 {
            return Ok(text);
        }
        let mut text = String::new();
        let mut reader = self.reader()?;
        while reader.read(&mut text)? {}
        Ok(text)
    }
}

/// Fills `piece` as far as `source` has bytes.
fn read_some(source: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match source.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a text from its beginning to its end.
pub struct PlainReader<'t> {
    source: Source<'t>,
    /// Bytes that were read and not handed out: the beginning of a character.
    open: Vec<u8>,
}

enum Source<'t> {
    Memory(&'t str),
    File { file: File, path: &'t Path, state: &'t FileState },
}

impl PlainReader<'_> {
    /// Appends some more of the text to `text`; false when there is no more.
    ///
    /// # Errors
    /// When the file cannot be read any more, or is another one.
    pub fn read(&mut self, text: &mut String) -> Result<bool, CorpusError> {
        match &mut self.source {
            Source::Memory(rest) => {
                let end =
                    (0..=PIECE.min(rest.len())).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(0);
                text.push_str(&rest[..end]);
                *rest = &rest[end..];
                Ok(end > 0)
            }
            Source::File { file, path, state } => {
                let failed = |source| CorpusError::Read { path: path.to_path_buf(), source };
                let changed = || CorpusError::Changed { path: path.to_path_buf() };
                let begin = self.open.len();
                self.open.resize(begin + PIECE, 0);
                let n = read_some(file, &mut self.open[begin..]).map_err(failed)?;
                self.open.truncate(begin + n);
                if n == 0 && FileState::new(&fs::metadata(path).map_err(failed)?) != **state {
                    return Err(changed());
                }
                let valid = match std::str::from_utf8(&self.open) {
                    Ok(all) => all.len(),
                    Err(error) if error.error_len().is_none() && n > 0 => error.valid_up_to(),
                    // It was UTF-8 when it was checked.
                    Err(_) => return Err(changed()),
                };
                text.push_str(std::str::from_utf8(&self.open[..valid]).map_err(|_| changed())?);
                self.open.drain(..valid);
                Ok(n > 0 || valid > 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &PlainText) -> String {
        let mut found = String::new();
        let mut reader = text.reader().unwrap();
        while reader.read(&mut found).unwrap() {}
        found
    }

    #[test]
    fn byte_order_mark_is_not_text() {
        let found = PlainText::keep(&b"\xEF\xBB\xBFhello\r\n"[..]).unwrap().unwrap();
        assert_eq!((found.bytes, all(&found.text).as_str()), (10, "hello\r\n"));
    }

    #[test]
    fn large_file_reads_as_the_small_one_does_and_is_missed_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.txt");
        let text = "añ€😀 ".repeat(200_000);
        fs::write(&path, format!("\u{FEFF}{text}")).unwrap();
        let found = PlainText::find(&path, &fs::metadata(&path).unwrap()).unwrap().unwrap();
        assert!(matches!(found.text.0, Place::File { .. }));
        assert_eq!(found.bytes, text.len() as u64 + 3);
        assert_eq!(all(&found.text), text);
        fs::write(&path, "another").unwrap();
        assert!(matches!(found.text.reader(), Err(CorpusError::Changed { .. })));
    }
}
