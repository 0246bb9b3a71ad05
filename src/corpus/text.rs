//! Texts that were read.

use super::chat::RenderedChat;
use super::plain::PlainText;
use crate::usage::{Corpus, CorpusFile};
use std::path::PathBuf;

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
pub enum Content {
    /// Text, without a byte order mark.
    Plain(PlainText),
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
            held_out: None,
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
