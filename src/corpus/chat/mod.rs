//! Chats: conversations, one a line, as text that a model reads.
//!
//! llama.cpp renders them, so that the text is the one that a model sees in use.

mod conversation;
mod engine;
mod error;
mod spans;

use crate::json::lenient::Repairs;
use conversation::Conversation;
#[cfg(feature = "llama")]
pub(crate) use conversation::GENERATED;
use engine::{Engine, Prompt};
pub use error::{BadChat, ChatError};
use std::ops::Range;
use std::path::Path;

/// The day that templates are told, so that the same conversations give the same text on any day.
pub const CHAT_DATE: &str = "2026-01-01";

/// How conversations become text.
#[derive(Clone, Debug, Default)]
pub struct ChatReader {
    /// The chat template, when there is one.
    pub template: Option<ChatTemplate>,
    /// The template for conversations with tools, where the model has one of its own for them.
    pub tool_template: Option<String>,
    /// The text of the token that begins a text; empty when there is none.
    pub bos: String,
    /// The text of the token that ends a text; empty when there is none.
    pub eos: String,
    /// Whether to find out which span of a conversation belongs to which role.
    pub by_role: bool,
    /// Whether the model is to answer: an answer that is there already is left out, and the beginning of one follows.
    pub answer: bool,
    /// Whether conversations that cannot be read or rendered are left out.
    pub skip_bad: bool,
}

/// A chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// Jinja.
    pub text: String,
    /// Where it comes from, for messages.
    pub origin: String,
}

/// The conversations of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadChats {
    /// Those that were rendered, in their order.
    pub chats: Vec<RenderedChat>,
    /// How many were left out.
    pub left_out: u64,
    /// What its user should know.
    pub remarks: Vec<String>,
}

/// A conversation as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedChat {
    /// The whole text.
    pub text: String,
    /// The ranges of the text that come from the conversation, ascending; the rest comes from the template. A special
    /// token that is spelt in one of them is plain text.
    pub inputs: Vec<Range<usize>>,
    /// The spans of the text, end to end, when they were asked for.
    pub spans: Vec<RoleSpan>,
}

/// A part of a rendered conversation that belongs to one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSpan {
    /// `user`, `assistant`, `system`, …, as a word of letters, digits, `_` and `-`.
    pub role: String,
    /// Byte in the text at which it ends; it begins where the one before ends.
    pub end: usize,
}

impl ChatReader {
    /// Renders the conversations in `content`, one a line; empty lines are passed over. The path serves the messages.
    ///
    /// # Errors
    /// When there is no template, no line is a conversation, or one of them cannot be used and those are not skipped.
    pub fn read(&self, path: &Path, content: &str) -> Result<ReadChats, ChatError> {
        let mut repairs = Repairs::default();
        let mut bad: Vec<(usize, BadChat)> = Vec::new();
        let mut conversations = Vec::new();
        let lines = content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (line, text) in lines.map(|(at, text)| (at + 1, text)) {
            let parsed = conversation::parse(text, &mut repairs).and_then(|conversation| {
                self.check_roles(&conversation)?;
                Ok(conversation)
            });
            match parsed {
                Ok(conversation) => conversations.push((line, conversation)),
                Err(what) => bad.push((line, BadChat::Form(what))),
            }
        }
        let total = conversations.len() + bad.len();
        if conversations.is_empty() {
            return match bad.into_iter().next() {
                Some((line, what)) => Err(ChatError::NotChats { path: path.into(), line, what }),
                None => Ok(ReadChats::default()),
            };
        }
        let given = self.template.as_ref();
        let given = given.ok_or_else(|| ChatError::NoTemplate { path: path.into() })?;
        let engine = Engine::new(self, &given.text)
            .map_err(|what| ChatError::Template { origin: given.origin.clone(), what })?;
        let mut chats = Vec::with_capacity(conversations.len());
        for (line, conversation) in conversations {
            match self.render(&engine, given, conversation) {
                Ok(chat) => chats.push(chat),
                Err(what) => bad.push((line, what)),
            }
        }
        bad.sort_by_key(|(line, _)| *line);
        if !bad.is_empty() && (!self.skip_bad || chats.is_empty()) {
            return Err(ChatError::Bad { path: path.into(), total, bad });
        }
        let remarks = remarks(path, total, repairs, &bad);
        Ok(ReadChats { chats, left_out: bad.len() as u64, remarks })
    }

    /// A role that is counted apart needs a name of its own.
    fn check_roles(&self, conversation: &Conversation) -> Result<(), String> {
        if !self.by_role && !self.answer {
            return Ok(());
        }
        conversation.messages.iter().enumerate().try_for_each(|(at, message)| {
            let name = conversation::part_name(&message.role);
            name.map(drop).map_err(|what| format!("message {}: {what}", at + 1))
        })
    }

    fn render(
        &self,
        engine: &Engine,
        template: &ChatTemplate,
        mut conversation: Conversation,
    ) -> Result<RenderedChat, BadChat> {
        let messages = &mut conversation.messages;
        if self.answer {
            while messages.pop_if(|message| message.role == ASSISTANT).is_some() {}
            if messages.is_empty() {
                return Err(BadChat::NothingToAnswer);
            }
        }
        let tools = conversation.tools.as_ref();
        let values: Vec<_> = messages.iter().map(|message| message.value.clone()).collect();
        let failed = |what| BadChat::Render { origin: template.origin.clone(), what };
        let Prompt { text, inputs } = engine.render(&values, tools, self.answer).map_err(failed)?;
        if !self.by_role {
            return Ok(RenderedChat { text, inputs, spans: Vec::new() });
        }
        let ends = spans::ends(
            messages,
            &text,
            &inputs,
            |messages| engine.render(messages, tools, self.answer).map(|prompt| prompt.text),
            |messages| engine.render(messages, tools, false).map(|prompt| prompt.text),
        );
        let mut spans = Vec::with_capacity(messages.len() + 1);
        for (message, end) in messages.iter().zip(ends) {
            spans
                .push(RoleSpan { role: conversation::part_name(&message.role).map_err(BadChat::Form)?, end });
        }
        match spans.last_mut() {
            Some(last) if !self.answer => last.end = text.len(),
            _ => spans.push(RoleSpan { role: ASSISTANT.to_owned(), end: text.len() }),
        }
        Ok(RenderedChat { text, inputs, spans })
    }
}

fn remarks(path: &Path, total: usize, repairs: Repairs, bad: &[(usize, BadChat)]) -> Vec<String> {
    let path = path.display();
    let mut remarks = Vec::new();
    if !bad.is_empty() {
        remarks.push(format!(
            "{path}: {} of {total} conversations are left out: {}",
            bad.len(),
            error::lines(bad)
        ));
    }
    if repairs.surrogates > 0 {
        let count = repairs.surrogates;
        remarks.push(format!(
            "{path}: {count} characters were cut in half (\\ud800 to \\udfff), and read as U+FFFD"
        ));
    }
    if repairs.numbers > 0 {
        let count = repairs.numbers;
        remarks.push(format!(
            "{path}: {count} numbers are NaN or infinite, which JSON has not, and read as null"
        ));
    }
    remarks
}

/// The role of the model.
const ASSISTANT: &str = "assistant";

#[cfg(all(test, feature = "llama"))]
mod tests;
