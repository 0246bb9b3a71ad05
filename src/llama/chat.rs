//! Chat templates, as llama.cpp reads and applies them. They need no model.

use super::{ffi, message};
use std::ptr::NonNull;

/// A chat template that llama.cpp has read.
pub struct ChatTemplate {
    raw: NonNull<ffi::moeslice_chat_template>,
}

/// A part of a rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptPart {
    /// The text.
    pub text: String,
    /// Whether it comes from the conversation, and not from the template: llama.cpp recognises no special tokens in it.
    pub is_input: bool,
}

/// Errors of the engine show the template around the place; what counts is at their end.
const ERROR_BYTES: usize = 1 << 16;

impl ChatTemplate {
    /// Reads a template. `bos` and `eos` are the texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// Says where and why the template cannot be read.
    pub fn new(template: &str, bos: &str, eos: &str) -> Result<ChatTemplate, String> {
        let mut error = vec![0; ERROR_BYTES];
        // SAFETY: the texts are valid for their lengths during the call, and the shim writes no more than the buffer has.
        let raw = unsafe {
            ffi::moeslice_chat_template_new(
                text(template),
                text(bos),
                text(eos),
                error.as_mut_ptr(),
                error.len(),
            )
        };
        NonNull::new(raw).map(|raw| ChatTemplate { raw }).ok_or_else(|| reason(&message(&error)))
    }

    /// Renders messages, and the tools that may be called: both JSON in the form of the OpenAI API. With `answer`, the
    /// beginning of an answer follows.
    ///
    /// # Errors
    /// Says why llama.cpp does not render them; in the words of the template when it refuses itself.
    pub fn render(
        &self,
        messages: &str,
        tools: Option<&str>,
        answer: bool,
    ) -> Result<Vec<PromptPart>, String> {
        let mut error = vec![0; ERROR_BYTES];
        // SAFETY: the template is alive; the rest as in `new`.
        let raw = unsafe {
            ffi::moeslice_chat_render(
                self.raw.as_ptr(),
                text(messages),
                text(tools.unwrap_or_default()),
                answer,
                error.as_mut_ptr(),
                error.len(),
            )
        };
        let rendered = NonNull::new(raw).map(Rendered).ok_or_else(|| reason(&message(&error)))?;
        Ok(rendered.parts())
    }
}

impl Drop for ChatTemplate {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `moeslice_chat_template_new` and is freed once.
        unsafe { ffi::moeslice_chat_template_free(self.raw.as_ptr()) }
    }
}

struct Rendered(NonNull<ffi::moeslice_rendered>);

impl Rendered {
    fn parts(&self) -> Vec<PromptPart> {
        // SAFETY: the object is alive as long as `self`.
        let count = unsafe { ffi::moeslice_rendered_parts(self.0.as_ptr()) };
        let part = |at| {
            // SAFETY: as above, and `at` is below the number of parts.
            let (text, is_input) = unsafe {
                let raw = self.0.as_ptr();
                (ffi::moeslice_rendered_text(raw, at), ffi::moeslice_rendered_is_input(raw, at))
            };
            let bytes = if text.bytes == 0 {
                &[]
            } else {
                // SAFETY: the shim hands out the bytes of a string that lives as long as the object.
                unsafe { std::slice::from_raw_parts(text.data.cast::<u8>(), text.bytes) }
            };
            // A template can cut a text between the bytes of a character.
            PromptPart { text: String::from_utf8_lossy(bytes).into_owned(), is_input }
        };
        (0..count).map(part).collect()
    }
}

impl Drop for Rendered {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `moeslice_chat_render` and is freed once.
        unsafe { ffi::moeslice_rendered_free(self.0.as_ptr()) }
    }
}

fn text(text: &str) -> ffi::moeslice_text {
    ffi::moeslice_text { data: text.as_ptr().cast(), bytes: text.len() }
}

/// What an error of the engine says, and where, without the template around the place. Errors are nested: the innermost
/// comes last.
fn reason(error: &str) -> String {
    let Some((before, what)) = error.rsplit_once("Error: ") else { return error.trim().to_owned() };
    let place = before.rsplit_once(" at line ").and_then(|(_, place)| place.split_once(" in source:"));
    match place {
        Some((place, _)) => format!("line {place}: {}", what.trim()),
        None => what.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, messages: &str) -> Result<Vec<(String, bool)>, String> {
        let parts = ChatTemplate::new(template, "<s>", "</s>")?.render(messages, None, false)?;
        Ok(parts.into_iter().map(|part| (part.text, part.is_input)).collect())
    }

    #[test]
    fn rendered_text_tells_template_from_input() {
        let template = "{{ bos_token }}{% for m in messages %}<|{{ m.content }}|>{% endfor %}";
        let parts = render(template, r#"[{"role":"user","content":"a\u0000b"}]"#).unwrap();
        let text: String = parts.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(text, "<s><|a\0b|>");
        assert_eq!(parts.iter().filter(|(_, input)| *input).count(), 1);
    }

    #[test]
    fn errors_say_what_and_where() {
        let message = render("{{ raise_exception('no, please') }}", r#"[{"role":"user","content":"a"}]"#);
        assert_eq!(message.unwrap_err(), "line 1, column 19: Jinja Exception: no, please");
        assert!(render("{% if %}", "[]").unwrap_err().contains("Unexpected"));
        assert!(render("a", "7").unwrap_err().contains("'messages' to be an array"));
        assert!(render("a", "{").is_err());
    }
}
