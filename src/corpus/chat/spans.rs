//! Which span of a rendered conversation belongs to which message.

use super::conversation::Message;
use crate::json::Json;
use std::ops::Range;

/// Stands in for the text of a message, to see where it lands. A character of the private use area, with which no real
/// text begins or ends.
const MARK: &str = "\u{F8FF}";

/// Finds where each message ends in `full`, the rendering of all `messages`; the ends ascend.
///
/// A message goes as far as the rendering of the conversation up to it, so that the tokens that close it are its own,
/// and those that open the next one are the next one's. Many templates render the same message otherwise when it is
/// the last one, or join it with the next; then it ends after its text and what closes it in both renderings.
/// Where neither shows anything, it ends with the part of the text that comes from the conversation and holds its text:
/// `inputs` are those parts. What follows the last message, such as the beginning of an answer, is in no span.
pub(super) fn ends(
    messages: &[Message],
    full: &str,
    inputs: &[Range<usize>],
    render_all: impl Fn(&[Json]) -> Result<String, String>,
    render_part: impl Fn(&[Json]) -> Result<String, String>,
) -> Vec<usize> {
    let values: Vec<Json> = messages.iter().map(|message| message.value.clone()).collect();
    let mut ends = Vec::with_capacity(messages.len());
    let mut begin = 0;
    for (at, message) in messages.iter().enumerate() {
        let part = render_part(&values[..=at]).ok();
        let simple = part.as_deref().filter(|part| {
            full.starts_with(part)
                && part.get(begin..).is_some_and(|own| own.contains(message.content.trim()))
        });
        let end = match simple {
            Some(part) => part.len(),
            None => {
                let mut marked = values.clone();
                marked[at] = message.with_content(MARK);
                match render_all(&marked) {
                    Ok(other) => {
                        let after = behind(full, &other);
                        // What closes the message when it is the last one, if it closes it here too.
                        let closing = part.as_deref().zip(render_part(&marked[..=at]).ok());
                        let closing = closing.map_or("", |(part, other)| behind(part, &other));
                        let closing = if after.starts_with(closing) { closing.len() } else { 0 };
                        full.len() - after.len() + closing
                    }
                    // Where nothing can be learned about this message, it shares the span of the next.
                    Err(_) => input_with(message.content.trim(), full, inputs, begin).unwrap_or(begin),
                }
            }
        };
        begin = end.max(begin);
        ends.push(begin);
    }
    ends
}

/// Where the first part of the conversation behind `begin` ends that holds `content`.
fn input_with(content: &str, full: &str, inputs: &[Range<usize>], begin: usize) -> Option<usize> {
    let found = inputs.iter().find(|input| {
        input.start >= begin && !content.is_empty() && full[(*input).clone()].contains(content)
    });
    found.map(|input| input.end)
}

/// What stands in `text` behind the only place where `other` differs from it.
fn behind<'t>(text: &'t str, other: &str) -> &'t str {
    let before = common_prefix(text, other);
    &text[text.len() - common_suffix(&text[before..], &other[before..])..]
}

/// Bytes, up to the end of a character, that `a` and `b` begin with.
fn common_prefix(a: &str, b: &str) -> usize {
    let pairs = a.char_indices().zip(b.chars());
    pairs.take_while(|((_, a), b)| a == b).last().map_or(0, |((at, c), _)| at + c.len_utf8())
}

/// Bytes that `a` and `b` end with, whole characters.
fn common_suffix(a: &str, b: &str) -> usize {
    a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}
