//! What can be wrong with chats.

use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// What is wrong with a file of chats.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// Not a single line is a conversation.
    #[error("{path}, line {line}: {what}")]
    NotChats {
        /// The file.
        path: PathBuf,
        /// The first line that is none, from 1.
        line: usize,
        /// What of it is wrong.
        what: BadChat,
    },
    /// Conversations that cannot be used.
    #[error("{}", several(.path, *.total, .bad))]
    Bad {
        /// The file.
        path: PathBuf,
        /// Conversations in the file, the bad ones among them.
        total: usize,
        /// The lines of the bad ones, from 1, and what of each is wrong; at least one.
        bad: Vec<(usize, BadChat)>,
    },
    /// There is no template to render with.
    #[error("{path} holds chats, and the model brings no chat template")]
    NoTemplate {
        /// The file.
        path: PathBuf,
    },
    /// The template cannot be read.
    #[error("{origin} cannot be read: {what}")]
    Template {
        /// Where the template comes from.
        origin: String,
        /// Where and why.
        what: String,
    },
}

/// What is wrong with one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BadChat {
    /// The line is not in the form of one.
    #[error("not a conversation: {0}")]
    Form(String),
    /// The template does not render it.
    #[error("{origin} does not render the conversation: {what}")]
    Render {
        /// Where the template comes from.
        origin: String,
        /// Why: the words of the template itself when it refuses.
        what: String,
    },
    /// Nothing that could be answered.
    #[error("there is nothing to answer: only the assistant speaks")]
    NothingToAnswer,
}

/// Bad lines that are named one by one.
const NAMED: usize = 3;

/// The first few of `bad`, and how many more there are.
pub(super) fn lines(bad: &[(usize, BadChat)]) -> impl fmt::Display + '_ {
    struct Lines<'b>(&'b [(usize, BadChat)]);
    impl fmt::Display for Lines<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (at, (line, what)) in self.0.iter().take(NAMED).enumerate() {
                write!(f, "{}line {line}: {what}", if at > 0 { "; " } else { "" })?;
            }
            match self.0.len().saturating_sub(NAMED) {
                0 => Ok(()),
                more => write!(f, "; and {more} more"),
            }
        }
    }
    Lines(bad)
}

fn several(path: &std::path::Path, total: usize, bad: &[(usize, BadChat)]) -> String {
    let path = path.display();
    match bad {
        [(line, what)] => format!("{path}, line {line}: {what}"),
        _ => format!("{path}: {} of {total} conversations cannot be used: {}", bad.len(), lines(bad)),
    }
}
