//! Texts and chats: what the command line names, read as UTF-8 and rendered.

mod chat;
mod read;

#[cfg(feature = "llama")]
pub(crate) use chat::GENERATED;
pub use chat::{ChatError, ChatReader, ChatTemplate, RenderedChat, RoleSpan};
pub use read::{Content, CorpusError, CorpusText, Text, TextSource, read_corpora};
