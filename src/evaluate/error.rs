use crate::llama::LlamaError;
use crate::windows::{NoPass, TokenizeError};
use thiserror::Error;

use super::MaskError;

/// Tokens of the smallest window that has one to score ([`super::scored`]).
pub(super) const MIN_WINDOW: u32 = 3;

/// Why a model could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The architecture cannot be run so.
    #[error(transparent)]
    NoPass(#[from] NoPass),
    /// A text that is too short.
    #[error(
        "the corpus {corpus:?} has {windows} whole windows of {ctx_size} tokens, and a measurement needs {least}: use more \
         text, or smaller windows"
    )]
    TooShort {
        /// The corpus.
        corpus: String,
        /// Its windows.
        windows: usize,
        /// Tokens of a window.
        ctx_size: u32,
        /// Windows that are needed.
        least: usize,
    },
    /// Windows in which no token has a half window before it and another behind it.
    #[error("windows of {ctx_size} tokens leave no token to score: they need at least {MIN_WINDOW}")]
    NothingToScore {
        /// Tokens of a window.
        ctx_size: u32,
    },
    /// The texts cannot be read or tokenized.
    #[error(transparent)]
    Text(#[from] TokenizeError),
    /// The experts cannot be masked.
    #[error(transparent)]
    Mask(#[from] MaskError),
    /// llama.cpp or an observer failed.
    #[error(transparent)]
    Llama(#[from] LlamaError),
    /// A token without logits.
    #[error("llama.cpp left no logits for a token whose logits were asked for")]
    NoLogits,
    /// Logits that are no numbers.
    #[error("the model's logits are not finite numbers: the file is damaged, or the device computes wrongly")]
    NotNumbers,
    /// The predictions of the base cannot be kept.
    #[error(
        "cannot keep the predictions of the base in a temporary file: {0}; TMPDIR names another folder for it"
    )]
    Store(std::io::Error),
}

impl EvalError {
    /// Whether the user ended it.
    pub fn is_interrupt(&self) -> bool {
        matches!(
            self,
            EvalError::Llama(LlamaError::Interrupted) | EvalError::Text(TokenizeError::Interrupted)
        )
    }
}
