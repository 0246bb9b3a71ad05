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

impl Vocab<'_> {
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

    /// Tokenizes `text` as it stands: special tokens in it are recognised, and none is added.
    ///
    /// # Errors
    /// As [`Vocab::tokenize`].
    pub fn tokenize_marked_up(&self, text: &str) -> Result<Vec<Token>, LlamaError> {
        self.tokens(text, false, true)
    }

    fn tokens(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<Token>, LlamaError> {
        let failed = |message: &str| LlamaError::Tokenize { bytes: text.len(), message: message.to_owned() };
        let bytes = i32::try_from(text.len()).map_err(|_| failed("it is 2 GiB or longer; split the file"))?;
        // Half a token a byte is more than nearly every text needs; a second call serves the rest.
        let mut tokens: Vec<Token> = vec![0; text.len() / 2 + 16];
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
            match count {
                i32::MIN => {
                    let told = message(&error);
                    return Err(failed(if told.is_empty() { "it has 2^31 tokens or more" } else { &told }));
                }
                0.. => {
                    tokens.truncate(count as usize);
                    return Ok(tokens);
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
