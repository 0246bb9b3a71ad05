//! Texts to tokens: as much as is wanted, in pieces, and heard when the user ends it.

use super::pieces::{Cuts, PIECE};
use crate::corpus::{CorpusError, PlainText, RenderedChat};
use crate::llama::{LlamaError, SpecialToken, Token, Tokenizer, Vocab};
use crate::progress::Interrupt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use thiserror::Error;

/// A text that did not become tokens.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The text cannot be read any more.
    #[error(transparent)]
    Text(#[from] CorpusError),
    /// llama.cpp does not tokenize it.
    #[error("{path}: {error}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: LlamaError,
    },
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}

/// Stack that llama.cpp's regular expressions take for each byte of a match, at most: they recurse.
const STACK_PER_BYTE: usize = 1 << 10;

/// Stacks to try. Only what is used of one takes memory.
const STACKS: [usize; 4] = [4 << 30, 1 << 30, 1 << 28, 1 << 26];

/// Makes tokens of texts.
pub(super) struct TextTokenizer<'v> {
    vocab: Vocab<'v>,
    cuts: Cuts,
    special: Vec<SpecialToken>,
    /// The tokens that the model wants before and behind a text.
    around: (Vec<Token>, Vec<Token>),
    /// Bytes of a piece, at most.
    longest: usize,
    interrupt: Interrupt,
}

/// Runs `work` with a tokenizer, on a thread with room for what the tokenizer of `vocab` needs.
///
/// # Errors
/// As `work`, and when there is not enough address space for the smallest stack.
pub(super) fn with_tokenizer<T: Send>(
    vocab: Vocab<'_>,
    interrupt: Interrupt,
    work: impl FnOnce(&TextTokenizer<'_>) -> Result<T, TokenizeError> + Send,
) -> Result<T, TokenizeError> {
    let tokenizer = |stack: usize| -> Result<TextTokenizer<'_>, LlamaError> {
        let recurses = vocab.tokenizer() == Tokenizer::BytePair;
        Ok(TextTokenizer {
            vocab,
            cuts: Cuts::new(vocab),
            special: vocab.special_tokens(),
            around: around(vocab)?,
            longest: if recurses { stack / STACK_PER_BYTE } else { i32::MAX as usize },
            interrupt,
        })
    };
    let failed = |error| TokenizeError::Tokenizer { path: PathBuf::from("the vocabulary"), error };
    let work = Mutex::new(Some(work));
    let (tokenizer, work) = (&tokenizer, &work);
    std::thread::scope(|scope| {
        let mut reason = None;
        for stack in STACKS {
            let run = move || {
                let work = work.lock().ok().and_then(|mut work| work.take());
                work.expect("one thread alone starts")(&tokenizer(stack).map_err(failed)?)
            };
            match std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, run) {
                Ok(thread) => return thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => reason = Some(error),
            }
        }
        let message = reason.map_or(String::new(), |error| format!("no thread can be started: {error}"));
        Err(failed(LlamaError::Tokenize { bytes: 0, message }))
    })
}

/// The tokens that the model wants before and behind a text.
fn around(vocab: Vocab<'_>) -> Result<(Vec<Token>, Vec<Token>), LlamaError> {
    let (bare, whole) = (vocab.tokenize_bare("a", false)?, vocab.tokenize("a", false)?);
    let at = (0..=whole.len().saturating_sub(bare.len())).find(|&at| whole[at..].starts_with(&bare));
    let at = at.unwrap_or(0);
    Ok((whole[..at].to_vec(), whole.get(at + bare.len()..).unwrap_or_default().to_vec()))
}

impl TextTokenizer<'_> {
    /// The vocabulary.
    pub fn vocab(&self) -> Vocab<'_> {
        self.vocab
    }

    /// The tokens of a plain text, with those that the model wants around it; no more than a piece beyond `wanted`.
    pub fn plain(
        &self,
        path: &Path,
        text: &PlainText,
        parse_special: bool,
        wanted: usize,
    ) -> Result<Vec<Token>, TokenizeError> {
        let mut tokens = self.around.0.clone();
        let mut reader = text.reader()?;
        let mut buffer = String::new();
        let mut pieces = Pieces::default();
        let mut more = true;
        while more && tokens.len() < wanted {
            more = reader.read(&mut buffer)?;
            pieces.take(self, path, &mut buffer, !more, parse_special, &mut tokens)?;
        }
        if !more {
            tokens.extend(&self.around.1);
        }
        Ok(tokens)
    }

    /// The tokens of the range `range` of a conversation. Special tokens are recognised where they come from the
    /// template; the text between them is tokenized as llama.cpp tokenizes the text between special tokens.
    pub fn chat(
        &self,
        path: &Path,
        chat: &RenderedChat,
        range: Range<usize>,
    ) -> Result<Vec<Token>, TokenizeError> {
        let mut tokens = Vec::new();
        for segment in segments(&self.special, &chat.text, &chat.inputs, range) {
            match segment {
                Segment::Token(token) => tokens.push(token),
                Segment::Text(range) => {
                    let mut text = chat.text[range].to_owned();
                    Pieces::default().take(self, path, &mut text, true, false, &mut tokens)?;
                }
            }
        }
        Ok(tokens)
    }

    fn piece(&self, path: &Path, text: &str, parse_special: bool) -> Result<Vec<Token>, TokenizeError> {
        self.interrupt.check().map_err(|_| TokenizeError::Interrupted)?;
        let failed = |error| TokenizeError::Tokenizer { path: path.to_owned(), error };
        if text.len() > self.longest {
            let message = format!("it has {} bytes without a blank between two words", text.len());
            return Err(failed(LlamaError::Tokenize { bytes: text.len(), message }));
        }
        self.vocab.tokenize_bare(text, parse_special).map_err(failed)
    }
}

/// The pieces of one text.
#[derive(Default)]
struct Pieces {
    /// The character before the piece that comes next, with which it is tokenized: at the beginning of a text some
    /// vocabularies put a blank.
    before: Option<char>,
    /// Bytes of the buffer in which there is no cut.
    searched: usize,
}

impl Pieces {
    /// Takes whole pieces out of `buffer`, all of it when it is the last that comes.
    fn take(
        &mut self,
        tokenizer: &TextTokenizer<'_>,
        path: &Path,
        buffer: &mut String,
        is_last: bool,
        parse_special: bool,
        tokens: &mut Vec<Token>,
    ) -> Result<(), TokenizeError> {
        loop {
            let from = self.searched.max(PIECE);
            let cut = tokenizer.cuts.find(buffer, from);
            let end = match cut {
                Some(cut) => cut,
                None if is_last => buffer.len(),
                None => {
                    // The next character decides about the last one.
                    self.searched = buffer.len().saturating_sub(1);
                    return if buffer.len() > tokenizer.longest {
                        tokenizer.piece(path, buffer, parse_special).map(drop)
                    } else {
                        Ok(())
                    };
                }
            };
            if end > 0 {
                tokens.extend(self.next(tokenizer, path, &buffer[..end], parse_special)?);
                self.before = buffer[..end].chars().next_back();
            }
            buffer.drain(..end);
            self.searched = 0;
            if cut.is_none() {
                return Ok(());
            }
        }
    }

    fn next(
        &self,
        tokenizer: &TextTokenizer<'_>,
        path: &Path,
        text: &str,
        parse_special: bool,
    ) -> Result<Vec<Token>, TokenizeError> {
        let Some(before) = self.before else { return tokenizer.piece(path, text, parse_special) };
        let before = before.to_string();
        let first = tokenizer.piece(path, &before, parse_special)?;
        let mut both = tokenizer.piece(path, &(before + text), parse_special)?;
        if !both.starts_with(&first) {
            let message = "its tokens cross where none should".to_owned();
            let error = LlamaError::Tokenize { bytes: text.len(), message };
            return Err(TokenizeError::Tokenizer { path: path.to_owned(), error });
        }
        both.drain(..first.len());
        Ok(both)
    }
}

/// A part of a text that holds special tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(Range<usize>),
    Token(Token),
}

/// Cuts the range `range` of `text` at the special tokens that are not spelt in `inputs`, as llama.cpp does: for each
/// token, the longest first, from left to right.
fn segments(
    special: &[SpecialToken],
    text: &str,
    inputs: &[Range<usize>],
    range: Range<usize>,
) -> Vec<Segment> {
    let mut segments = vec![Segment::Text(range.clone())];
    for special in special.iter().filter(|special| text[range.clone()].contains(&special.text)) {
        let mut next = Vec::with_capacity(segments.len());
        for segment in segments {
            match segment {
                Segment::Text(range) => split(special, text, inputs, range, &mut next),
                token => next.push(token),
            }
        }
        segments = next;
    }
    segments
}

fn split(
    special: &SpecialToken,
    text: &str,
    inputs: &[Range<usize>],
    range: Range<usize>,
    segments: &mut Vec<Segment>,
) {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0B' | '\x0C');
    let mut begin = range.start;
    let mut from = range.start;
    while let Some(at) = text[from..range.end].find(&special.text).map(|at| from + at) {
        let end = at + special.text.len();
        let next = inputs.partition_point(|input| input.end <= at);
        if !special.anywhere && inputs.get(next).is_some_and(|input| input.start < end) {
            from = at + special.text.chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let mut left = begin..at;
        if special.strips_left {
            left.end = left.start + text[left.clone()].trim_end_matches(blank).len();
        }
        if !left.is_empty() {
            segments.push(Segment::Text(left));
        }
        segments.push(Segment::Token(special.token));
        begin = end;
        if special.strips_right {
            begin = range.end - text[end..range.end].trim_start_matches(blank).len();
        }
        from = begin;
    }
    if begin < range.end {
        segments.push(Segment::Text(begin..range.end));
    }
}

#[cfg(test)]
mod tests;
