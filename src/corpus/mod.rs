//! Texts and chats: what the command line names, read as UTF-8 and rendered.

mod bytes;
mod chat;
mod error;
mod folder;
mod plain;
mod read;
mod source;
mod text;

#[cfg(feature = "llama")]
pub(crate) use chat::GENERATED;
pub use chat::{BadChat, CHAT_DATE, ChatError, ChatReader, ChatTemplate, ReadChats, RenderedChat, RoleSpan};
pub use error::CorpusError;
pub use plain::{PlainReader, PlainText};
pub use read::read_corpora;
pub use source::TextSource;
pub use text::{Content, CorpusText, Text};
