//! The engine that renders: llama.cpp's own. A library without it renders nothing.

use super::ChatReader;
use crate::json::Json;
use std::ops::Range;

/// A text with the ranges that come from the conversation, not from the template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub text: String,
    pub inputs: Vec<Range<usize>>,
}

#[cfg(feature = "llama")]
mod llama {
    use super::*;
    use crate::llama;

    /// A template that was read.
    pub(in super::super) struct Engine {
        template: llama::ChatTemplate,
        with_tools: Option<llama::ChatTemplate>,
    }

    impl Engine {
        /// Reads the templates of `reader`.
        ///
        /// # Errors
        /// Says what is wrong with the one that serves conversations without tools.
        pub fn new(reader: &ChatReader, template: &str) -> Result<Engine, String> {
            let read = |text: &str| llama::ChatTemplate::new(text, &reader.bos, &reader.eos);
            // As llama.cpp has it: a second template that cannot be read leaves all to the first.
            let with_tools = reader.tool_template.as_ref().and_then(|text| read(text).ok());
            Ok(Engine { template: read(template)?, with_tools })
        }

        /// Renders messages, with the beginning of an answer if one is to follow.
        ///
        /// # Errors
        /// Says why the template does not render them.
        pub fn render(
            &self,
            messages: &[Json],
            tools: Option<&Json>,
            answer: bool,
        ) -> Result<Prompt, String> {
            let template = self.with_tools.as_ref().filter(|_| tools.is_some()).unwrap_or(&self.template);
            let messages = Json::Array(messages.to_vec()).to_text();
            let tools = tools.map(Json::to_text);
            let mut prompt = Prompt::default();
            for part in template.render(&messages, tools.as_deref(), answer)? {
                let begin = prompt.text.len();
                prompt.text.push_str(&part.text);
                if part.is_input && begin < prompt.text.len() {
                    prompt.inputs.push(begin..prompt.text.len());
                }
            }
            Ok(prompt)
        }
    }
}

#[cfg(feature = "llama")]
pub(super) use llama::Engine;

#[cfg(not(feature = "llama"))]
pub(super) enum Engine {}

#[cfg(not(feature = "llama"))]
impl Engine {
    pub fn new(_: &ChatReader, _: &str) -> Result<Engine, String> {
        Err("chats are rendered by llama.cpp, which this build is without".into())
    }

    pub fn render(&self, _: &[Json], _: Option<&Json>, _: bool) -> Result<Prompt, String> {
        match *self {}
    }
}
