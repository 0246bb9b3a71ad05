//! Corpora: what the command line names, read as UTF-8 text.

use super::chat::{ChatError, ChatReader};
use super::error::CorpusError;
use super::folder::list_files;
use super::plain::{Found, PlainText};
use super::source::TextSource;
use super::text::{Content, CorpusText, Text};
use crate::usage::CorpusFile;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

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
    let mut seen: HashMap<PathBuf, String> = HashMap::new();
    for source in sources {
        let texts = read_source(&source.path, chats, remark)?;
        if texts.is_empty() {
            return Err(CorpusError::Empty { name: source.name.clone(), path: source.path.clone() });
        }
        for text in &texts {
            if let Some(first) = seen.insert(real_path(&text.path), source.name.clone()) {
                return Err(CorpusError::Twice {
                    path: text.path.clone(),
                    first,
                    second: source.name.clone(),
                });
            }
        }
        match corpora.iter_mut().find(|corpus| corpus.name == source.name) {
            Some(corpus) => corpus.texts.extend(texts),
            None => corpora.push(CorpusText { name: source.name.clone(), texts }),
        }
    }
    Ok(corpora)
}

fn real_path(path: &Path) -> PathBuf {
    let path = if TextSource::is_stdin(path) { Path::new("/dev/stdin") } else { path };
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn read_source(
    path: &Path,
    chats: &ChatReader,
    remark: &mut dyn FnMut(String),
) -> Result<Vec<Text>, CorpusError> {
    let is_folder = !TextSource::is_stdin(path)
        && fs::metadata(path).map_err(|source| CorpusError::Read { path: path.to_owned(), source })?.is_dir();
    if is_folder {
        return read_folder(path, chats, remark);
    }
    let text = read_text(path, path, chats, remark)?;
    if text.is_none() {
        remark(format!("{}: the file is empty", path.display()));
    }
    Ok(text.into_iter().collect())
}

fn read_folder(
    folder: &Path,
    chats: &ChatReader,
    remark: &mut dyn FnMut(String),
) -> Result<Vec<Text>, CorpusError> {
    let mut texts = Vec::new();
    let mut seen = HashSet::new();
    for file in list_files(folder)? {
        let why = if seen.insert(real_path(&file)) {
            match read_text(&file, file.strip_prefix(folder).unwrap_or(&file), chats, remark) {
                Ok(Some(text)) => {
                    texts.push(text);
                    continue;
                }
                Ok(None) => "the file is empty".into(),
                Err(CorpusError::NotText { what, .. }) => format!("not UTF-8 text: {what}"),
                Err(CorpusError::Chat(ChatError::NotChats { line, what, .. })) => {
                    format!("no chats are in it (line {line}: {what})")
                }
                Err(CorpusError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                    "it is gone".into()
                }
                Err(error) => return Err(error),
            }
        } else {
            "a link to a file that the folder has already".into()
        };
        remark(format!("{}: passed over, {why}", file.display()));
    }
    Ok(texts)
}

/// Reads one file; `None` when there is nothing in it.
fn read_text(
    path: &Path,
    shown: &Path,
    chats: &ChatReader,
    remark: &mut dyn FnMut(String),
) -> Result<Option<Text>, CorpusError> {
    let Found { bytes, sha256, text } = find(path)?;
    let mut file = CorpusFile { path: shown.to_string_lossy().into_owned(), bytes, sha256, left_out: 0 };
    let content = if is_chat(path) {
        let read = chats.read(path, &text.into_text()?)?;
        file.left_out = read.left_out;
        read.remarks.into_iter().for_each(remark);
        Content::Chats(read.chats)
    } else {
        Content::Plain(text)
    };
    let is_empty = match &content {
        Content::Plain(text) => text.is_empty(),
        Content::Chats(chats) => chats.is_empty(),
    };
    Ok((!is_empty).then_some(Text { path: path.to_owned(), file, content }))
}

fn find(path: &Path) -> Result<Found, CorpusError> {
    let failed = |source| CorpusError::Read { path: path.to_owned(), source };
    let found = if TextSource::is_stdin(path) {
        PlainText::keep(std::io::stdin().lock())
    } else {
        let metadata = fs::metadata(path).map_err(failed)?;
        let kind = metadata.file_type();
        if !(kind.is_file() || kind.is_fifo() || kind.is_char_device()) {
            return Err(CorpusError::NoText { path: path.to_owned() });
        }
        PlainText::find(path, &metadata)
    };
    found.map_err(failed)?.map_err(|what| CorpusError::NotText { path: path.to_owned(), what })
}

fn is_chat(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("jsonl"))
}

#[cfg(test)]
mod tests;
