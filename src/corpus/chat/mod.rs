//! Chats: conversations, one a line, as text that a model reads.
//!
//! Knows nothing of llama.cpp: the template and the texts of BOS and EOS are given.

mod conversation;
mod spans;
mod template;

use conversation::Conversation;
#[cfg(feature = "llama")]
pub(crate) use conversation::GENERATED;
use minijinja::{Error, Template, Value, context};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// How conversations become text.
#[derive(Clone, Debug, Default)]
pub struct ChatReader {
    /// The chat template, when there is one.
    pub template: Option<ChatTemplate>,
    /// The text of the token that begins a text; empty when there is none.
    pub bos: String,
    /// The text of the token that ends a text; empty when there is none.
    pub eos: String,
    /// Whether to find out which span of a conversation belongs to which role.
    pub by_role: bool,
    /// Whether the model is to answer: an answer that is there already is left out, and the beginning of one follows.
    pub answer: bool,
}

/// A chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// Jinja.
    pub text: String,
    /// Where it comes from, for messages.
    pub origin: String,
}

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedChat {
    /// The whole text.
    pub text: String,
    /// The spans of the text, end to end, when they were asked for.
    pub spans: Vec<RoleSpan>,
}

/// A part of a rendered conversation that belongs to one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSpan {
    /// `user`, `assistant`, `system`, …
    pub role: String,
    /// Byte in the text at which it ends; it begins where the one before ends.
    pub end: usize,
}

/// What is wrong with a chat.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A line that holds no conversation.
    #[error("{path}, line {line}: not a conversation: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What of it is wrong.
        what: String,
    },
    /// There is no template to render with.
    #[error("{path} holds chats, and the model brings no chat template")]
    NoTemplate {
        /// The file.
        path: PathBuf,
    },
    /// The template is not Jinja as we know it.
    #[error("{origin} cannot be read: {source}")]
    Template {
        /// Where the template comes from.
        origin: String,
        /// Where and why.
        source: Error,
    },
    /// The template does not render the conversation.
    #[error("{path}, line {line}: {origin} does not render the conversation: {source}")]
    Render {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Where the template comes from.
        origin: String,
        /// Why: the words of the template itself when it refuses.
        source: Error,
    },
    /// Nothing that could be answered.
    #[error("{path}, line {line}: there is nothing to answer: only the assistant speaks")]
    NothingToAnswer {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

impl ChatReader {
    /// Renders the conversations in `content`, one a line; empty lines are passed over. The path serves the messages.
    ///
    /// # Errors
    /// When there is no template, or a line is not a conversation that the template renders.
    pub fn read(&self, path: &Path, content: &str) -> Result<Vec<RenderedChat>, ChatError> {
        let lines = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let conversations = lines
            .map(|(at, text)| {
                let line = at + 1;
                let failed = |what| ChatError::Line { path: path.into(), line, what };
                conversation::parse(text).map(|conversation| (line, conversation)).map_err(failed)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if conversations.is_empty() {
            return Ok(Vec::new());
        }
        let given = self.template.as_ref();
        let given = given.ok_or_else(|| ChatError::NoTemplate { path: path.into() })?;
        let environment = template::environment();
        let text = template::prepare(&given.text);
        let template = environment
            .template_from_named_str("template", &text)
            .map_err(|source| ChatError::Template { origin: given.origin.clone(), source })?;
        let render = |(line, mut conversation): (usize, Conversation)| {
            if self.answer {
                while conversation.messages.pop_if(|message| message.role == ASSISTANT).is_some() {}
                if conversation.messages.is_empty() {
                    return Err(ChatError::NothingToAnswer { path: path.into(), line });
                }
            }
            let origin = given.origin.clone();
            let failed = |source| ChatError::Render { path: path.into(), line, origin, source };
            self.render(&template, &conversation).map_err(failed)
        };
        conversations.into_iter().map(render).collect()
    }

    fn render(
        &self,
        template: &Template<'_, '_>,
        conversation: &Conversation,
    ) -> Result<RenderedChat, Error> {
        let render = |messages: &[Value], add_generation_prompt: bool| {
            template.render(context! {
                messages => messages,
                tools => &conversation.tools,
                documents => (),
                bos_token => &self.bos,
                eos_token => &self.eos,
                add_generation_prompt,
            })
        };
        let messages = &conversation.messages;
        let values: Vec<Value> = messages.iter().map(|message| message.value.clone()).collect();
        let text = render(&values, self.answer)?;
        if !self.by_role {
            return Ok(RenderedChat { text, spans: Vec::new() });
        }
        let ends = spans::ends(
            messages,
            &text,
            |messages| render(messages, self.answer),
            |messages| render(messages, false),
        );
        let mut spans: Vec<RoleSpan> = messages
            .iter()
            .zip(ends)
            .map(|(message, end)| RoleSpan { role: message.role.clone(), end })
            .collect();
        match spans.last_mut().expect("a conversation has messages") {
            _ if self.answer => spans.push(RoleSpan { role: ASSISTANT.to_owned(), end: text.len() }),
            last => last.end = text.len(),
        }
        Ok(RenderedChat { text, spans })
    }
}

/// The role of the model.
const ASSISTANT: &str = "assistant";

#[cfg(test)]
mod tests;
