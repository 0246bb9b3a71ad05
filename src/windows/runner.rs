//! Batches of windows through a context, while observers watch. Knows nothing of what is counted.

use super::config::PassConfig;
use super::cut::Window;
use crate::llama::{Batch, Context, LlamaError, Model, ObserveError, Observer, Token};
use crate::progress::{Interrupt, Progress};
use thiserror::Error;

/// An observer that is told what the graph is about to compute.
pub trait WindowObserver: Observer {
    /// A batch begins. `parts` says of each of its tokens, in the order in which they are computed, which part of the
    /// texts it belongs to.
    ///
    /// # Errors
    /// When what was observed of the last batch is bad: the pass ends.
    fn begin_batch(&mut self, parts: &[u32]) -> Result<(), ObserveError>;
}

/// A pass that ended before its last window.
#[derive(Debug, Error)]
#[error("after {done} of {total} tokens: {error}")]
#[non_exhaustive]
pub struct PassError {
    /// Tokens computed.
    pub done: u64,
    /// Tokens to compute.
    pub total: u64,
    /// What went wrong.
    pub error: LlamaError,
}

/// Runs windows through a model.
pub struct Runner<'m, 'p> {
    context: Context<'m>,
    encode: bool,
    batch: Batch,
    interrupt: Interrupt,
    done: u64,
    total: u64,
    progress: &'p mut dyn Progress,
}

impl<'m, 'p> Runner<'m, 'p> {
    /// A runner of `total` tokens.
    ///
    /// # Errors
    /// When llama.cpp cannot make the context.
    pub fn new(
        model: &'m Model,
        config: &PassConfig,
        total: u64,
        progress: &'p mut dyn Progress,
    ) -> Result<Self, LlamaError> {
        Ok(Runner {
            context: Context::new(model, &config.context)?,
            encode: config.encode,
            batch: Batch::new(),
            interrupt: config.context.interrupt,
            done: 0,
            total,
            progress,
        })
    }

    /// The context, with what the last batch left behind.
    pub fn context(&self) -> &Context<'m> {
        &self.context
    }

    /// Names what the next windows belong to.
    pub fn name(&mut self, what: &str) {
        self.progress.name(what);
        self.progress.update(self.done, self.total);
    }

    /// Computes windows, each from an empty context, in one batch.
    ///
    /// # Errors
    /// When llama.cpp or the observer fails, or the user interrupts.
    pub fn run(&mut self, windows: &[Window], observer: &mut dyn WindowObserver) -> Result<(), PassError> {
        self.batch.clear();
        let mut parts = Vec::new();
        for (sequence, window) in (0..).zip(windows) {
            self.batch.push(sequence, 0, &window.tokens);
            parts.extend_from_slice(&window.parts);
        }
        self.context.clear();
        self.compute(&parts, observer)
    }

    /// Computes one more token behind the last window, at `position`.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn follow(
        &mut self,
        (position, token): (u32, Token),
        part: u32,
        observer: &mut dyn WindowObserver,
    ) -> Result<(), PassError> {
        self.batch.clear();
        self.batch.push(0, position, &[token]);
        self.compute(&[part], observer)
    }

    /// Logits `[n_vocab]` of the last token of the last batch.
    pub fn last_logits(&self) -> Option<&[f32]> {
        self.batch.len().checked_sub(1).and_then(|last| self.context.logits(last))
    }

    /// So many tokens fewer are to be computed.
    pub fn expect_fewer(&mut self, tokens: u64) {
        self.total -= tokens;
        self.progress.update(self.done, self.total);
    }

    /// An error at this place of the pass.
    pub fn failed(&self, error: LlamaError) -> PassError {
        PassError { done: self.done, total: self.total, error }
    }

    fn compute(&mut self, parts: &[u32], observer: &mut dyn WindowObserver) -> Result<(), PassError> {
        let outcome = match self.interrupt.check() {
            Err(_) => Err(LlamaError::Interrupted),
            Ok(()) => observer.begin_batch(parts).map_err(LlamaError::from).and_then(|()| {
                let observer: &mut dyn Observer = observer;
                if self.encode {
                    self.context.encode(&mut self.batch, observer)
                } else {
                    self.context.decode(&mut self.batch, observer)
                }
            }),
        };
        outcome.map_err(|error| self.failed(error))?;
        self.done += self.batch.len() as u64;
        self.progress.update(self.done, self.total);
        Ok(())
    }
}
