//! Why a profile could not be made.

use super::counting::CheckError;
use super::tally::TallyError;
use crate::llama::LlamaError;
use crate::windows::{NoPass, PassError, TokenizeError};
use thiserror::Error;

/// Why a profile could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The model cannot be run for its routing.
    #[error(transparent)]
    NoPass(#[from] NoPass),
    /// A text did not become tokens.
    #[error(transparent)]
    Text(#[from] TokenizeError),
    /// No token in all the texts.
    #[error("the corpus {corpus:?} has no tokens: there is nothing to profile in it")]
    NoTokens {
        /// The corpus.
        corpus: String,
    },
    /// More parts than there is to share out.
    #[error("the texts make {batches} batches, which cannot be shared out among {parts}")]
    TooManyParts {
        /// Parts.
        parts: u32,
        /// Batches of the run.
        batches: u64,
    },
    /// llama.cpp or an observer failed.
    #[error("{corpus:?}, {error}")]
    Window {
        /// The corpus that was running.
        corpus: String,
        /// How far the pass had come, and what went wrong.
        error: PassError,
    },
    /// The model gave no number to choose a token by.
    #[error("{corpus:?}: the logits are not numbers, so there is no token to go on with")]
    NoNextToken {
        /// The corpus that was running.
        corpus: String,
    },
    /// llama.cpp failed before the first window.
    #[error(transparent)]
    Llama(#[from] LlamaError),
    /// The figures cannot be right.
    #[error(transparent)]
    Tally(#[from] TallyError),
    /// The figures contradict each other.
    #[error("the figures of the profile do not agree, so nothing is written: {what}")]
    Inconsistent {
        /// Layer, corpus and numbers.
        what: String,
    },
}

impl From<CheckError> for ProfileError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Llama(error) => error.into(),
            CheckError::Tally(error) => error.into(),
        }
    }
}

impl ProfileError {
    /// What llama.cpp or an observer said, when one of them failed.
    pub fn llama(&self) -> Option<&LlamaError> {
        match self {
            ProfileError::Llama(error) => Some(error),
            ProfileError::Window { error, .. } => Some(&error.error),
            _ => None,
        }
    }

    /// Whether the user ended the pass.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, ProfileError::Text(TokenizeError::Interrupted))
            || matches!(self.llama(), Some(LlamaError::Interrupted))
    }
}
