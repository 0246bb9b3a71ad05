//! The vocabulary of a model: text to tokens.

use super::error::LlamaError;
use super::{ERROR_BYTES, ffi, message};

/// Index of a token in the vocabulary.
pub type Token = i32;

/// The vocabulary of a loaded model.
#[derive(Clone, Copy)]
pub struct Vocab<'m> {
    pub(super) raw: *const ffi::llama_vocab,
    pub(super) _model: std::marker::PhantomData<&'m ()>,
}

// SAFETY: a vocabulary does not change once its model is loaded, and the model outlives it.
unsafe impl Send for Vocab<'_> {}
// SAFETY: as above; llama.cpp tokenizes on several threads with one vocabulary itself.
unsafe impl Sync for Vocab<'_> {}

/// How a vocabulary makes tokens of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// Pairs of symbols are merged, in no words (SentencePiece).
    SentencePiece,
    /// Pairs of symbols are merged, in words that a regular expression finds.
    BytePair,
    /// The longest token of what is left of a word (WordPiece).
    WordPiece,
    /// The longest token of what is left of the text (RWKV).
    Greedy,
    /// Another way.
    Other,
}

/// A token that stands for a text of its own, such as `<|im_start|>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialToken {
    /// The token.
    pub token: Token,
    /// How it is spelt.
    pub text: String,
    /// Whether it is found in any text; else only where special tokens are recognised.
    pub anywhere: bool,
    /// Whether the blanks before it belong to it.
    pub strips_left: bool,
    /// Whether the blanks behind it belong to it.
    pub strips_right: bool,
}

impl Vocab<'_> {
    /// How text becomes tokens.
    pub fn tokenizer(&self) -> Tokenizer {
        // SAFETY: the vocabulary lives as long as the model that `self` borrows.
        match unsafe { ffi::llama_vocab_type(self.raw) } {
            ffi::LLAMA_VOCAB_TYPE_SPM => Tokenizer::SentencePiece,
            ffi::LLAMA_VOCAB_TYPE_BPE => Tokenizer::BytePair,
            ffi::LLAMA_VOCAB_TYPE_WPM => Tokenizer::WordPiece,
            ffi::LLAMA_VOCAB_TYPE_RWKV => Tokenizer::Greedy,
            _ => Tokenizer::Other,
        }
    }

    /// The text of a token, as the vocabulary spells it.
    pub fn text(&self, token: Token) -> Option<&str> {
        if usize::try_from(token).ok()? >= self.len() {
            return None;
        }
        // SAFETY: the token is in the vocabulary, whose texts end with NUL and live as long as the model.
        let text = unsafe { std::ffi::CStr::from_ptr(ffi::llama_vocab_get_text(self.raw, token)) };
        text.to_str().ok()
    }

    /// The tokens that stand for a text of their own, the longest first, as llama.cpp looks for them.
    pub fn special_tokens(&self) -> Vec<SpecialToken> {
        let n_tokens = Token::try_from(self.len()).unwrap_or(Token::MAX);
        let mut special: Vec<SpecialToken> = (0..n_tokens)
            .filter_map(|token| {
                // SAFETY: the token is in the vocabulary.
                let attributes = unsafe { ffi::llama_vocab_get_attr(self.raw, token) };
                let has = |attribute| attributes & attribute != 0;
                let anywhere = has(ffi::LLAMA_TOKEN_ATTR_USER_DEFINED);
                let marked = has(ffi::LLAMA_TOKEN_ATTR_CONTROL) || has(ffi::LLAMA_TOKEN_ATTR_UNKNOWN);
                let text = self.text(token).filter(|text| (anywhere || marked) && !text.is_empty())?;
                Some(SpecialToken {
                    token,
                    text: text.to_owned(),
                    anywhere: anywhere && !marked,
                    strips_left: has(ffi::LLAMA_TOKEN_ATTR_LSTRIP),
                    strips_right: has(ffi::LLAMA_TOKEN_ATTR_RSTRIP),
                })
            })
            .collect();
        special.sort_by_key(|special| std::cmp::Reverse(special.text.len()));
        special
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        // SAFETY: the vocabulary lives as long as the model that `self` borrows.
        unsafe { ffi::llama_vocab_n_tokens(self.raw) }.max(0) as usize
    }

    /// Whether it has no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token that begins a text, when the model asks for one.
    pub fn leading_bos(&self) -> Option<Token> {
        // SAFETY: as in `len`.
        unsafe { ffi::llama_vocab_get_add_bos(self.raw).then(|| ffi::llama_vocab_bos(self.raw)) }
    }

    /// Whether `token` ends what a model generates: the end of a text, of a turn, or of a call of a tool.
    pub fn is_end_of_generation(&self, token: Token) -> bool {
        // SAFETY: as in `len`; llama.cpp takes any number, and no token outside the vocabulary is an end.
        unsafe { ffi::llama_vocab_is_eog(self.raw, token) }
    }

    /// Tokenizes `text`, with the tokens that the model wants around a text. Special tokens inside the text, such as
    /// `<|im_start|>`, are recognised only when `parse_special` is set.
    ///
    /// # Errors
    /// When the text is 2 GiB or longer, or llama.cpp's tokenizer fails.
    pub fn tokenize(&self, text: &str, parse_special: bool) -> Result<Vec<Token>, LlamaError> {
        self.tokens(text, true, parse_special)
    }

    /// Tokenizes `text` as it stands, with no token around it.
    ///
    /// # Errors
    /// As [`Vocab::tokenize`].
    pub fn tokenize_bare(&self, text: &str, parse_special: bool) -> Result<Vec<Token>, LlamaError> {
        self.tokens(text, false, parse_special)
    }

    fn tokens(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<Token>, LlamaError> {
        let failed = |message: &str| LlamaError::Tokenize { bytes: text.len(), message: message.to_owned() };
        let bytes = i32::try_from(text.len()).map_err(|_| failed("it is 2 GiB or longer; split the file"))?;
        // Half a token a byte is more than nearly every long text needs; a second call serves the rest.
        let room = if text.len() < 1 << 20 { text.len() } else { text.len() / 2 };
        let mut tokens: Vec<Token> = vec![0; room + 16];
        loop {
            let mut error = [0; ERROR_BYTES];
            let capacity = i32::try_from(tokens.len()).map_err(|_| failed("it has 2^31 tokens or more"))?;
            // SAFETY: text and tokens are valid for the lengths that go with them, the vocabulary is alive.
            let count = unsafe {
                ffi::moeslice_tokenize(
                    self.raw,
                    text.as_ptr().cast(),
                    bytes,
                    tokens.as_mut_ptr(),
                    capacity,
                    add_special,
                    parse_special,
                    error.as_mut_ptr(),
                    error.len(),
                )
            };
            super::observer::went_on();
            match count {
                i32::MIN => {
                    let told = message(&error);
                    return Err(failed(if told.is_empty() { "it has 2^31 tokens or more" } else { &told }));
                }
                0.. => {
                    tokens.truncate(count as usize);
                    let known = 0..self.len();
                    // What a vocabulary cannot spell becomes a token that it does not have.
                    let spelt =
                        |token: &Token| usize::try_from(*token).is_ok_and(|token| known.contains(&token));
                    return match tokens.iter().all(spelt) {
                        true => Ok(tokens),
                        false => Err(failed("the vocabulary has no tokens for a part of it")),
                    };
                }
                _ => {
                    let needed = count.unsigned_abs() as usize;
                    if needed <= tokens.len() {
                        return Err(failed("the tokenizer does not say how many tokens it needs"));
                    }
                    tokens.resize(needed, 0);
                }
            }
        }
    }
}
