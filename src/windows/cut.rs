//! Corpora as the model gets them: windows of tokens, and the part of the corpus that each token counts for.

use super::tokenize::{TextTokenizer, TokenizeError, with_tokenizer};
use crate::corpus::{Content, CorpusText, GENERATED, RenderedChat};
use crate::llama::{Token, Vocab};
use crate::progress::Interrupt;
use crate::usage::HeldOut;
use std::ops::Range;
use std::path::Path;

/// How texts become windows.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Tokens of a window.
    pub n_tokens: usize,
    /// Windows of each corpus, at most.
    pub limit: usize,
    /// Whether special tokens inside plain texts are recognised.
    pub parse_special: bool,
    /// Whether the model answers the chats.
    pub answer: bool,
    /// Ends the cutting when it comes.
    pub interrupt: Interrupt,
}

/// Tokens that are computed from an empty context.
#[derive(Clone, Debug)]
pub struct Window {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The part that each token counts for.
    pub parts: Vec<u32>,
    /// The part that an answer after this window counts for, when there is to be one.
    pub answer: Option<u32>,
}

/// A part of a corpus, which is counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusPart {
    /// Index of the corpus.
    pub corpus: usize,
    /// The name that the usage file knows it by: that of the corpus, or `CORPUS/ROLE`.
    pub name: String,
}

/// All corpora.
#[derive(Debug, Default)]
pub struct Windows {
    /// The parts, in the order of the corpora and, within one, of first appearance.
    pub parts: Vec<CorpusPart>,
    /// The windows of each corpus, in order.
    pub corpora: Vec<Vec<Window>>,
    /// Conversations that are answered, and were too long for one window.
    pub answers_without_beginning: usize,
}

impl Windows {
    /// Cuts `corpora`. A text ends in a window that may be shorter; each conversation is a text. No more of a text is
    /// tokenized than there is room for.
    ///
    /// # Errors
    /// When a text cannot be read or tokenized, or the interrupt comes.
    pub fn cut(vocab: Vocab<'_>, corpora: &[CorpusText], cut: Cut) -> Result<Windows, TokenizeError> {
        with_tokenizer(vocab, cut.interrupt, |tokenizer| {
            let mut windows = Windows::default();
            for corpus in corpora {
                windows.corpora.push(Vec::new());
                windows.cut_corpus(tokenizer, corpus, cut)?;
            }
            Ok(windows)
        })
    }

    /// Takes one window of so many out of each corpus; says which, for each corpus.
    pub fn hold_out(&mut self, every: Option<u32>) -> Vec<Option<HeldOut>> {
        let take = |windows: &mut Vec<Window>| {
            let held_out = HeldOut { every: every?, of: windows.len() as u64 };
            let mut at = 0;
            windows.retain(|_| {
                at += 1;
                !held_out.holds(at - 1)
            });
            Some(held_out)
        };
        self.corpora.iter_mut().map(take).collect()
    }

    /// Tokens in all windows.
    pub fn n_tokens(&self) -> u64 {
        self.corpora.iter().flatten().map(|window| window.tokens.len() as u64).sum()
    }

    /// Windows that are followed by an answer.
    pub fn n_answers(&self) -> u64 {
        self.corpora.iter().flatten().filter(|window| window.answer.is_some()).count() as u64
    }

    fn cut_corpus(
        &mut self,
        tokenizer: &TextTokenizer<'_>,
        corpus: &CorpusText,
        cut: Cut,
    ) -> Result<(), TokenizeError> {
        for text in &corpus.texts {
            match &text.content {
                Content::Plain(plain) => {
                    let room = self.room(cut);
                    if room > 0 {
                        let tokens = tokenizer.plain(&text.path, plain, cut.parse_special, room)?;
                        let parts = vec![self.part(&corpus.name); tokens.len()];
                        self.cut_text(tokenizer.vocab().leading_bos(), tokens, parts, cut);
                    }
                }
                Content::Chats(chats) => {
                    for chat in chats {
                        if self.room(cut) > 0 {
                            self.cut_chat(tokenizer, corpus, (&text.path, chat), cut)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn cut_chat(
        &mut self,
        tokenizer: &TextTokenizer<'_>,
        corpus: &CorpusText,
        (path, chat): (&Path, &RenderedChat),
        cut: Cut,
    ) -> Result<(), TokenizeError> {
        let mut tokens = tokenizer.chat(path, chat, 0..chat.text.len())?;
        let mut parts = if chat.spans.is_empty() {
            vec![self.part(&corpus.name); tokens.len()]
        } else {
            let ends = token_ends(&tokens, chat, |range| tokenizer.chat(path, chat, range))?;
            let mut parts = Vec::with_capacity(tokens.len());
            for (span, end) in chat.spans.iter().zip(ends) {
                if end > parts.len() {
                    parts.resize(end, self.part(&format!("{}/{}", corpus.name, span.role)));
                }
            }
            parts
        };
        // Most templates write BOS themselves; where the model wants one and the template has none, it is added.
        let bos = tokenizer.vocab().leading_bos();
        if let (Some(bos), Some(&first_part)) = (bos, parts.first())
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
            parts.insert(0, first_part);
        }
        let before = self.corpora.last().map_or(0, Vec::len);
        let whole = self.cut_text(bos, tokens, parts, cut);
        if cut.answer && whole && self.corpora.last().is_some_and(|windows| windows.len() > before) {
            let part = self.part(&format!("{}/{GENERATED}", corpus.name));
            let windows = self.corpora.last_mut().expect("the corpus that is being cut");
            self.answers_without_beginning += usize::from(windows.len() > before + 1);
            windows.last_mut().expect("there is one more than before").answer = Some(part);
        }
        Ok(())
    }

    /// Cuts one text, and says whether all of it found room.
    fn cut_text(&mut self, bos: Option<Token>, tokens: Vec<Token>, parts: Vec<u32>, cut: Cut) -> bool {
        for (tokens, parts) in tokens.chunks(cut.n_tokens).zip(parts.chunks(cut.n_tokens)) {
            if self.room(cut) == 0 {
                return false;
            }
            let mut tokens = tokens.to_vec();
            // `llama-perplexity` and `llama-imatrix` put it there too.
            if let (Some(bos), Some(first)) = (bos, tokens.first_mut()) {
                *first = bos;
            }
            let window = Window { tokens, parts: parts.to_vec(), answer: None };
            self.corpora.last_mut().expect("the corpus that is being cut").push(window);
        }
        true
    }

    /// Tokens that the corpus that is being cut has room for.
    fn room(&self, cut: Cut) -> usize {
        let windows = self.corpora.last().map_or(0, |windows| cut.limit.saturating_sub(windows.len()));
        windows.saturating_mul(cut.n_tokens)
    }

    /// The index of the part called `name` of the corpus that is being cut.
    fn part(&mut self, name: &str) -> u32 {
        let corpus = self.corpora.len() - 1;
        let known = self.parts.iter().position(|part| part.corpus == corpus && part.name == name);
        let at = known.unwrap_or_else(|| {
            self.parts.push(CorpusPart { corpus, name: name.to_owned() });
            self.parts.len() - 1
        });
        u32::try_from(at).expect("a run has fewer parts than tokens fit into memory")
    }
}

/// Where each span of `chat` ends in its `tokens`.
///
/// Stretches mostly begin and end at special tokens, and tokenized apart give the tokens of the whole. Where they do not,
/// a token that reaches over an end counts for the span behind it: the text up to the end is tokenized, and as many
/// of its tokens belong to it as the whole begins with.
fn token_ends<E>(
    tokens: &[Token],
    chat: &RenderedChat,
    mut tokenize: impl FnMut(Range<usize>) -> Result<Vec<Token>, E>,
) -> Result<Vec<usize>, E> {
    let mut ends = Vec::with_capacity(chat.spans.len());
    let mut begin = 0;
    let mut apart = Vec::with_capacity(tokens.len());
    for span in &chat.spans {
        apart.extend(tokenize(begin..span.end)?);
        ends.push(apart.len());
        begin = span.end;
    }
    if apart == tokens {
        return Ok(ends);
    }
    let mut least = 0;
    for (span, end) in chat.spans.iter().zip(&mut ends) {
        if span.end < chat.text.len() {
            let before = tokenize(0..span.end)?;
            *end = before.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        } else {
            *end = tokens.len();
        }
        least = least.max(*end);
        *end = least;
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::RoleSpan;

    /// One token a word with the space before it, as byte-pair vocabularies have them; `|` is special.
    fn tokenize(text: &str) -> Result<Vec<Token>, ()> {
        let mut tokens = Vec::new();
        let mut word = String::new();
        let mut end = |word: &mut String| {
            if !word.is_empty() {
                tokens.push(word.bytes().fold(0, |sum: i32, byte| sum.wrapping_mul(31) + i32::from(byte)));
                word.clear();
            }
        };
        for c in text.chars() {
            if c == ' ' || c == '|' {
                end(&mut word);
            }
            word.push(c);
            if c == '|' {
                end(&mut word);
            }
        }
        end(&mut word);
        Ok(tokens)
    }

    fn ends(spans: &[&str]) -> Vec<usize> {
        let mut chat = RenderedChat { text: String::new(), inputs: Vec::new(), spans: Vec::new() };
        for text in spans {
            chat.text += text;
            chat.spans.push(RoleSpan { role: "user".into(), end: chat.text.len() });
        }
        token_ends(&tokenize(&chat.text).unwrap(), &chat, |range| tokenize(&chat.text[range])).unwrap()
    }

    #[test]
    fn text_between_special_tokens_keeps_its_corpus() {
        assert_eq!(ends(&["|user| one two|", "|assistant| three|"]), [6, 11]);
        assert_eq!(ends(&["|user| one|", "", "|user| two|"]), [5, 5, 10]);
    }

    #[test]
    fn token_across_a_span_end_counts_for_the_next_span() {
        assert_eq!(ends(&["one two", "three four"]), [1, 3], "the token \"twothree\" belongs to the second");
        assert_eq!(ends(&["a", "b", "c"]), [0, 0, 1]);
        assert_eq!(ends(&["one two ", "three"]), [2, 3], "so does a space that joins the next word");
    }
}
