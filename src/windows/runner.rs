//! Batches of windows through a context, while observers watch. Knows nothing of what is counted.

use super::config::PassConfig;
use super::cut::Window;
use crate::llama::{Batch, Context, LlamaError, Model, ObserveError, Observer, Token};
use crate::progress::{Interrupt, Progress};
use std::ops::Range;
use thiserror::Error;

/// An observer that is told what the graph is about to compute, and when it is computed.
pub trait WindowObserver: Observer {
    /// A batch begins. `parts` says of each of its tokens, in their order, which part of the texts it belongs to. That
    /// is the order in which they are computed when the pass was made with
    /// [`PassNeeds::in_order`](super::PassNeeds::in_order).
    ///
    /// # Errors
    /// When what was observed of the last batch is bad: the pass ends.
    fn begin_batch(&mut self, parts: &[u32]) -> Result<(), ObserveError>;

    /// The batch that was begun last is computed; what it left behind stays until the next one.
    ///
    /// # Errors
    /// When what it left behind is bad: the pass ends.
    fn end_batch(&mut self, computed: &Computed<'_>) -> Result<(), LlamaError> {
        let _ = computed;
        Ok(())
    }
}

/// A batch that was computed.
pub struct Computed<'c> {
    /// The context, with what the batch left behind: logits or states, by the place of a token in the batch.
    pub context: &'c Context<'c>,
    /// The windows of the call of [`Runner::run`].
    pub windows: &'c [Window],
    /// Where the tokens of the batch come from, in their order; the tokens of a piece are followed by those of the next.
    pub pieces: &'c [Piece],
}

/// Consecutive tokens of one window, in one batch. A window that is longer than a batch comes in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the window among [`Computed::windows`].
    pub window: usize,
    /// Place of the first token in its window.
    pub position: u32,
    /// Place of the first token in the batch.
    pub index: usize,
    /// Tokens.
    pub n_tokens: usize,
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

/// How many of `windows` the next batch takes: one at least.
fn fit(windows: &[Window], n_batch: usize, n_seq: usize) -> usize {
    let mut n_tokens = 0;
    let fits = |window: &&Window| {
        n_tokens += window.tokens.len();
        n_tokens <= n_batch
    };
    windows.iter().take(n_seq).take_while(fits).count().max(1)
}

/// The batches that [`Runner::run`] makes of `windows`.
pub fn count_batches(config: &PassConfig, windows: &[Window]) -> u64 {
    let n_batch = config.context.n_batch.max(1) as usize;
    let slices = |group: Range<usize>| windows[group.start].tokens.len().div_ceil(n_batch).max(1) as u64;
    groups(config, windows).into_iter().map(slices).sum()
}

/// Places of the windows that [`Runner::run`] puts into one batch each. A window that is longer than a batch is a group of its
/// own.
pub fn groups(config: &PassConfig, windows: &[Window]) -> Vec<Range<usize>> {
    let (n_batch, n_seq) = (config.context.n_batch.max(1) as usize, config.context.n_seq as usize);
    let mut groups = Vec::new();
    let mut begin = 0;
    while let Some(rest) = windows.get(begin..).filter(|rest| !rest.is_empty()) {
        let end = begin + fit(rest, n_batch, n_seq);
        groups.push(begin..end);
        begin = end;
    }
    groups
}

/// Runs windows through a model.
pub struct Runner<'m, 'p> {
    context: Context<'m>,
    n_batch: usize,
    n_seq: usize,
    batch: Batch,
    pieces: Vec<Piece>,
    parts: Vec<u32>,
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
            n_batch: config.context.n_batch as usize,
            n_seq: config.context.n_seq as usize,
            batch: Batch::new(),
            pieces: Vec::new(),
            parts: Vec::new(),
            interrupt: config.context.settings.interrupt,
            done: 0,
            total,
            progress,
        })
    }

    /// Names what the next windows belong to.
    pub fn name(&mut self, what: &str) {
        self.progress.name(what);
        self.progress.update(self.done, self.total);
    }

    /// Computes windows, each from an empty context, as many in a batch as fit by their tokens.
    ///
    /// # Errors
    /// When llama.cpp or the observer fails, or the user interrupts.
    pub fn run(&mut self, windows: &[Window], observer: &mut dyn WindowObserver) -> Result<(), PassError> {
        let mut first = 0;
        while let Some(rest) = windows.get(first..).filter(|rest| !rest.is_empty()) {
            let count = fit(rest, self.n_batch, self.n_seq);
            self.context.clear().map_err(|error| self.failed(error))?;
            if rest[0].tokens.len() > self.n_batch {
                self.slices(windows, first, observer)?;
            } else {
                self.begin();
                for (sequence, window) in rest[..count].iter().enumerate() {
                    self.push((first + sequence, sequence), window, 0..window.tokens.len());
                }
                self.compute(windows, observer)?;
            }
            first += count;
        }
        Ok(())
    }

    /// Computes a window that is longer than a batch.
    fn slices(
        &mut self,
        windows: &[Window],
        index: usize,
        observer: &mut dyn WindowObserver,
    ) -> Result<(), PassError> {
        let window = &windows[index];
        for begin in (0..window.tokens.len()).step_by(self.n_batch) {
            self.begin();
            self.push((index, 0), window, begin..window.tokens.len().min(begin + self.n_batch));
            self.compute(windows, observer)?;
        }
        Ok(())
    }

    /// Computes one more token behind the last window, at `position`. That window has to be the only one of its batch.
    /// The token is not in a window, so the batch has no pieces.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn follow(
        &mut self,
        (position, token): (u32, Token),
        part: u32,
        observer: &mut dyn WindowObserver,
    ) -> Result<(), PassError> {
        self.begin();
        self.batch.push(0, position, &[token]);
        self.parts.push(part);
        self.compute(&[], observer)
    }

    /// Logits `[n_vocab]` of the last token of the last batch.
    ///
    /// # Errors
    /// When llama.cpp cannot give them: a device may be lost.
    pub fn last_logits(&self) -> Result<Option<&[f32]>, PassError> {
        let last = self.batch.len().checked_sub(1);
        let logits = last.map(|last| self.context.logits(last)).transpose();
        logits.map(Option::flatten).map_err(|error| self.failed(error))
    }

    /// The devices that have computed, the one with most work first.
    pub fn devices(&self) -> Vec<String> {
        self.context.devices()
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

    fn begin(&mut self) {
        self.batch.clear();
        self.pieces.clear();
        self.parts.clear();
    }

    /// Appends tokens of the window `index`, which is in `sequence`, to the batch.
    fn push(&mut self, (index, sequence): (usize, usize), window: &Window, tokens: Range<usize>) {
        let position = u32::try_from(tokens.start).expect("a window has fewer than 2^32 tokens");
        let sequence = u32::try_from(sequence).expect("a batch has few sequences");
        self.pieces.push(Piece { window: index, position, index: self.batch.len(), n_tokens: tokens.len() });
        self.batch.push(sequence, position, &window.tokens[tokens.clone()]);
        self.parts.extend_from_slice(&window.parts[tokens]);
    }

    fn compute(&mut self, windows: &[Window], observer: &mut dyn WindowObserver) -> Result<(), PassError> {
        let outcome = match self.interrupt.check() {
            Err(_) => Err(LlamaError::Interrupted),
            Ok(()) => observer.begin_batch(&self.parts).map_err(LlamaError::from).and_then(|()| {
                let observer: &mut dyn Observer = observer;
                self.context.decode(&mut self.batch, observer)
            }),
        };
        let computed = Computed { context: &self.context, windows, pieces: &self.pieces };
        outcome.and_then(|()| observer.end_batch(&computed)).map_err(|error| PassError {
            done: self.done,
            total: self.total,
            error,
        })?;
        self.done += self.batch.len() as u64;
        self.progress.update(self.done, self.total);
        Ok(())
    }
}
