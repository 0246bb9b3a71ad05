//! Corpora: what the command line names, read as UTF-8 text.

use super::chat::{ChatError, ChatReader, RenderedChat};
use crate::usage::{Corpus, CorpusFile};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One `-f`: a file or a folder, and the name of the corpus that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSource {
    /// The corpus.
    pub name: String,
    /// File or folder.
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
                // `.` and `..` have no stem of their own.
                let resolved = match path.file_stem() {
                    None => path.canonicalize().unwrap_or_else(|_| path.clone()),
                    Some(_) => path.clone(),
                };
                let stem = resolved.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                (
                    stem.ok_or_else(|| {
                        format!("{shown:?} gives no name for the corpus; write NAME={shown}")
                    })?,
                    path,
                )
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
}

/// One text of a corpus.
#[derive(Clone, Debug)]
pub struct Text {
    /// Where it was read from.
    pub path: PathBuf,
    /// The file, for people and for the usage file.
    pub file: CorpusFile,
    /// What is in it.
    pub content: Content,
}

/// The content of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Content {
    /// Text, without a byte order mark.
    Plain(String),
    /// The conversations of a `.jsonl` file, each a text of its own.
    Chats(Vec<RenderedChat>),
}

/// A named body of text, read.
#[derive(Clone, Debug)]
pub struct CorpusText {
    /// The name.
    pub name: String,
    /// Its texts, in reading order.
    pub texts: Vec<Text>,
}

impl CorpusText {
    /// How the usage file lists it, or a part of it called `name`, once `tokens` were profiled.
    pub fn entry(&self, name: &str, tokens: u64) -> Corpus {
        Corpus {
            name: name.to_owned(),
            files: self.texts.iter().map(|text| text.file.clone()).collect(),
            tokens,
        }
    }

    /// The conversations in it, in reading order.
    pub fn chats(&self) -> impl Iterator<Item = &RenderedChat> {
        self.texts.iter().flat_map(|text| match &text.content {
            Content::Plain(_) => &[],
            Content::Chats(chats) => chats.as_slice(),
        })
    }
}

/// What is wrong with a text.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// File or folder cannot be read.
    #[error("{path}: cannot read the text: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that is not UTF-8 text.
    #[error("{path}: not UTF-8 text: {what}")]
    NotText {
        /// The file.
        path: PathBuf,
        /// What it is instead, and what to do.
        what: String,
    },
    /// Neither file nor folder.
    #[error("{path}: neither a file nor a folder")]
    NeitherFileNorFolder {
        /// The path.
        path: PathBuf,
    },
    /// A file that would be counted twice.
    #[error("{path} is given twice, as part of {first:?} and of {second:?}; each text counts once")]
    Twice {
        /// The file.
        path: PathBuf,
        /// The corpus that has it already.
        first: String,
        /// The corpus that wants it as well.
        second: String,
    },
    /// A corpus without a single text.
    #[error(
        "the corpus {name:?} holds no text: {path} has no file with UTF-8 text in it (hidden files are passed over)"
    )]
    Empty {
        /// The corpus.
        name: String,
        /// What was given for it.
        path: PathBuf,
    },
    /// A file of chats that cannot be used.
    #[error(transparent)]
    Chat(#[from] ChatError),
}

/// Reads all sources. Sources of one name make one corpus; the corpora keep the order in which they first appear. Files
/// whose names end in `.jsonl` are chats, which `chats` renders. What is passed over in a folder, and why, is told to
/// `remark`.
///
/// # Errors
/// When a path cannot be read, a file that was named itself is not UTF-8 text, a chat cannot be rendered, a file is given
/// twice, or a corpus holds no text.
pub fn read_corpora(
    sources: &[TextSource],
    chats: &ChatReader,
    remark: &mut dyn FnMut(String),
) -> Result<Vec<CorpusText>, CorpusError> {
    let mut corpora: Vec<CorpusText> = Vec::new();
    let mut seen: Vec<(PathBuf, String)> = Vec::new();
    for source in sources {
        let texts = read_source(&source.path, chats, remark)?;
        if texts.is_empty() {
            return Err(CorpusError::Empty { name: source.name.clone(), path: source.path.clone() });
        }
        for text in &texts {
            let real = real_path(&text.path);
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == real) {
                return Err(CorpusError::Twice {
                    path: text.path.clone(),
                    first: first.clone(),
                    second: source.name.clone(),
                });
            }
            seen.push((real, source.name.clone()));
        }
        match corpora.iter_mut().find(|corpus| corpus.name == source.name) {
            Some(corpus) => corpus.texts.extend(texts),
            None => corpora.push(CorpusText { name: source.name.clone(), texts }),
        }
    }
    Ok(corpora)
}

fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn read_source(
    path: &Path,
    chats: &ChatReader,
    remark: &mut dyn FnMut(String),
) -> Result<Vec<Text>, CorpusError> {
    let failed = |source| CorpusError::Read { path: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(failed)?;
    if kind.is_file() {
        let text = read_text(path, path, chats)?;
        if text.is_none() {
            remark(format!("{}: the file is empty", path.display()));
        }
        return Ok(text.into_iter().collect());
    }
    if !kind.is_dir() {
        return Err(CorpusError::NeitherFileNorFolder { path: path.to_owned() });
    }
    let mut files = Vec::new();
    list_files(path, &mut files)?;
    let mut texts = Vec::new();
    let mut seen = Vec::new();
    for file in files {
        let mut pass_over = |why: String| remark(format!("{}: passed over, {why}", file.display()));
        let real = real_path(&file);
        if seen.contains(&real) {
            pass_over("a link to a file that the folder has already".into());
            continue;
        }
        match read_text(&file, file.strip_prefix(path).unwrap_or(&file), chats) {
            Ok(Some(text)) => {
                texts.push(text);
                seen.push(real);
            }
            Ok(None) => pass_over("the file is empty".into()),
            Err(CorpusError::NotText { what, .. }) => pass_over(format!("not UTF-8 text: {what}")),
            Err(error) => return Err(error),
        }
    }
    Ok(texts)
}

/// All files below `folder`, hidden ones left out, sorted by path so that every machine reads them in the same order.
fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    let failed = |source| CorpusError::Read { path: folder.to_owned(), source };
    let mut entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // A link to a folder could lead in a circle; a link to a file is read.
        if kind.is_dir() {
            list_files(&path, files)?;
        } else if kind.is_file() || path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Reads one file; `None` when there is nothing in it.
fn read_text(path: &Path, shown: &Path, chats: &ChatReader) -> Result<Option<Text>, CorpusError> {
    let not_text = |what| CorpusError::NotText { path: path.to_owned(), what };
    let bytes = read_bytes(path).map_err(|source| CorpusError::Read { path: path.to_owned(), source })?;
    let bytes = bytes.ok_or_else(|| not_text(BINARY.to_owned()))?;
    let file = CorpusFile {
        path: shown.to_string_lossy().into_owned(),
        bytes: bytes.len() as u64,
        sha256: crate::digest::sha256(&bytes),
    };
    let content = decode(bytes).map_err(not_text)?;
    let content =
        if is_chat(path) { Content::Chats(chats.read(path, &content)?) } else { Content::Plain(content) };
    let is_empty = match &content {
        Content::Plain(text) => text.is_empty(),
        Content::Chats(chats) => chats.is_empty(),
    };
    Ok((!is_empty).then_some(Text { path: path.to_owned(), file, content }))
}

fn is_chat(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"))
}

const BINARY: &str = "there are NUL bytes in it; is it a binary file?";

/// Reads a file; `None` when its beginning shows that it is no text: a folder may hold models of many gigabytes.
fn read_bytes(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    const BEGINNING: u64 = 1 << 16;
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.by_ref().take(BEGINNING).read_to_end(&mut bytes)?;
    if bytes.contains(&0) && !is_utf16(&bytes) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF")
}

/// UTF-8 without its byte order mark, or what the bytes are instead.
fn decode(mut bytes: Vec<u8>) -> Result<String, String> {
    const BOM: &[u8] = b"\xEF\xBB\xBF";
    if is_utf16(&bytes) {
        return Err("it is UTF-16; convert it first, for example with iconv -f UTF-16 -t UTF-8".into());
    }
    if bytes.starts_with(BOM) {
        bytes.drain(..BOM.len());
    }
    if bytes.contains(&0) {
        return Err(BINARY.to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the byte at {at} is no UTF-8; is it in another encoding, such as Latin-1 (iconv -f LATIN1 -t UTF-8)?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sources: &[&str]) -> (Result<Vec<CorpusText>, CorpusError>, Vec<String>) {
        let sources: Vec<TextSource> =
            sources.iter().map(|text| TextSource::parse(OsStr::new(text)).unwrap()).collect();
        let mut remarks = Vec::new();
        let result = read_corpora(&sources, &ChatReader::default(), &mut |remark| remarks.push(remark));
        (result, remarks)
    }

    #[test]
    fn corpus_name_comes_from_prefix_or_file_stem() {
        let parse = |text: &str| TextSource::parse(OsStr::new(text)).unwrap().name;
        assert_eq!(parse("notes/dev.txt"), "dev");
        assert_eq!(parse("corpora/pm"), "pm");
        assert_eq!(parse("work=notes/dev.txt"), "work");
        assert_eq!(parse("a/b=c.txt"), "b=c");
        assert!(TextSource::parse(OsStr::new("work=")).is_err());
    }

    #[test]
    fn byte_order_mark_is_left_out_of_text() {
        assert_eq!(decode(b"\xEF\xBB\xBFhello\r\n".to_vec()).unwrap(), "hello\r\n");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_the_reason() {
        assert!(decode(b"\xFF\xFEh\0".to_vec()).unwrap_err().contains("UTF-16"));
        assert!(decode(b"ca\xF1a".to_vec()).unwrap_err().contains("byte at 2"));
        assert!(decode(b"ab\0c".to_vec()).unwrap_err().contains("NUL bytes"));
    }

    #[test]
    fn folder_is_read_in_order_and_other_files_are_remarked() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = folder.path().join("corpus");
        fs::create_dir_all(corpus.join("b")).unwrap();
        fs::write(corpus.join("z.txt"), "last").unwrap();
        fs::write(corpus.join("a.txt"), "first").unwrap();
        fs::write(corpus.join("b/inner.md"), "middle").unwrap();
        fs::write(corpus.join("image.png"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
        fs::write(corpus.join("empty.txt"), "").unwrap();
        fs::write(corpus.join(".hidden"), "no").unwrap();
        let (result, remarks) = read(&[corpus.to_str().unwrap()]);
        let corpora = result.unwrap();
        let paths: Vec<&str> = corpora[0].texts.iter().map(|text| text.file.path.as_str()).collect();
        assert_eq!(paths, ["a.txt", "b/inner.md", "z.txt"]);
        assert_eq!(remarks.len(), 2);
        assert!(remarks.iter().any(|remark| remark.contains("image.png")), "{remarks:?}");
    }

    #[test]
    fn text_given_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.txt");
        fs::write(&file, "text").unwrap();
        let file = file.to_str().unwrap();
        let (result, _) = read(&[file, &format!("again={file}")]);
        assert!(matches!(result, Err(CorpusError::Twice { .. })));
    }

    #[test]
    fn sources_of_one_name_make_one_corpus() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one.txt", "two.txt"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let at = |name: &str| folder.path().join(name).display().to_string();
        let (result, _) = read(&[&format!("dev={}", at("one.txt")), &format!("dev={}", at("two.txt"))]);
        let corpora = result.unwrap();
        assert_eq!(corpora.len(), 1);
        assert_eq!(corpora[0].texts.len(), 2);
    }

    #[test]
    fn empty_corpus_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (result, _) = read(&[folder.path().to_str().unwrap()]);
        assert!(matches!(result, Err(CorpusError::Empty { .. })));
        let file = folder.path().join("e.txt");
        fs::write(&file, "").unwrap();
        let (result, _) = read(&[file.to_str().unwrap()]);
        assert!(matches!(result, Err(CorpusError::Empty { .. })));
    }
}
