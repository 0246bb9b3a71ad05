//! Windows through a model, and the logits of their second halves.

use super::EvalError;
use crate::llama::{Batch, Context, ContextOptions, LlamaError, Model, Node, ObserveError, Observer, Token};
use crate::moe::Experts;
use crate::preflight::Wanted;
use crate::progress::Interrupt;
use crate::windows::{NoPass, PassConfig, PassNeeds, Window, WindowOptions};
use std::ops::Range;

/// The logits of a batch take at most so many bytes, unless one window needs more than that.
const LOGIT_BYTES: u64 = 256 << 20;

/// Windows of one corpus.
#[derive(Clone, Debug)]
pub struct EvalCorpus {
    /// The name of the corpus.
    pub name: String,
    /// Its windows; each is scored from the middle on.
    pub windows: Vec<Window>,
}

impl EvalCorpus {
    /// Tokens in the windows.
    pub fn n_tokens(&self) -> u64 {
        self.windows.iter().map(|window| window.tokens.len() as u64).sum()
    }

    /// Tokens that are scored.
    pub fn n_scored(&self) -> u64 {
        self.windows.iter().map(|window| scored(window).len() as u64).sum()
    }
}

/// The positions of a window whose logits are looked at: from the middle to the last but one. Each foresees the token
/// behind it.
pub fn scored(window: &Window) -> Range<usize> {
    let n = window.tokens.len();
    n / 2..n.saturating_sub(1).max(n / 2)
}

/// The logits of some windows, as they lie in llama.cpp's buffer.
pub(super) struct Rows<'c> {
    /// `[n_vocab]` each.
    pub logits: Vec<&'c [f32]>,
    /// The token that came after each.
    pub targets: Vec<Token>,
}

/// An observer that looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn wants(&mut self, _: &Node<'_>) -> bool {
        false
    }

    fn observe(&mut self, _: &mut Node<'_>) -> Result<(), ObserveError> {
        Ok(())
    }
}

/// A context in which windows are scored.
pub struct Scorer<'m> {
    context: Context<'m>,
    batch: Batch,
    n_batch: usize,
    /// Windows that go into one batch, at most.
    n_seq: usize,
    /// Whether every token goes the whole way through the model, scored or not.
    whole: bool,
    n_vocab: usize,
    threads: usize,
    interrupt: Interrupt,
}

impl<'m> Scorer<'m> {
    /// A context for windows of at most `options.ctx_size` tokens.
    ///
    /// # Errors
    /// When the architecture does not predict token after token, or llama.cpp cannot make the context.
    pub fn new(model: &'m Model, experts: &Experts, options: &WindowOptions) -> Result<Self, EvalError> {
        Self::of(model, options, Self::wanted(model, experts, options)?, false)
    }

    /// As [`Scorer::new`], but takes one window at a time, and all of its tokens through every layer: the last layer of most
    /// models computes only tokens whose logits are asked for.
    ///
    /// # Errors
    /// As [`Scorer::new`].
    pub fn one_by_one(
        model: &'m Model,
        experts: &Experts,
        options: &WindowOptions,
    ) -> Result<Self, EvalError> {
        Self::of(model, options, Self::wanted_one_by_one(model, experts, options)?, true)
    }

    fn of(model: &'m Model, options: &WindowOptions, wanted: Wanted, whole: bool) -> Result<Self, EvalError> {
        let Wanted { context, .. } = wanted;
        Ok(Scorer {
            n_batch: context.n_batch as usize,
            n_seq: context.n_seq as usize,
            context: Context::new(model, &context)?,
            batch: Batch::new(),
            whole,
            n_vocab: model.vocab().len(),
            threads: options.settings.threads_batch as usize,
            interrupt: options.settings.interrupt,
        })
    }

    /// The context that [`Scorer::new`] makes. `model` may be planned alone.
    ///
    /// # Errors
    /// When the architecture does not predict token after token.
    pub fn wanted(model: &Model, experts: &Experts, options: &WindowOptions) -> Result<Wanted, EvalError> {
        Self::wanted_for(model, experts, options, crate::llama::max_sequences(), false)
    }

    /// The context that [`Scorer::one_by_one`] makes. `model` may be planned alone.
    ///
    /// # Errors
    /// As [`Scorer::wanted`].
    pub fn wanted_one_by_one(
        model: &Model,
        experts: &Experts,
        options: &WindowOptions,
    ) -> Result<Wanted, EvalError> {
        Self::wanted_for(model, experts, options, 1, true)
    }

    fn wanted_for(
        model: &Model,
        experts: &Experts,
        options: &WindowOptions,
        at_once: u32,
        whole: bool,
    ) -> Result<Wanted, EvalError> {
        let needs = PassNeeds { logits: true, ..PassNeeds::default() };
        let config = PassConfig::new(model, experts, options, needs)?;
        if !config.causal {
            let reason = "it fills in masked tokens, so it has no perplexity".into();
            return Err(NoPass { architecture: experts.architecture.clone(), reason }.into());
        }
        let n_vocab = model.vocab().len();
        let n_window = options.ctx_size.max(2);
        let outputs = if whole { n_window } else { n_window / 2 };
        let window_bytes = u64::from(outputs).saturating_mul(n_vocab as u64 * 4).max(1);
        let that_fit = u32::try_from(LOGIT_BYTES / window_bytes).unwrap_or(u32::MAX);
        let limit = if model.is_recurrent() { 1 } else { that_fit.clamp(1, at_once) };
        let n_seq = (options.batch_size / n_window).clamp(1, limit);
        let n_batch = if n_seq == 1 { options.batch_size.clamp(1, n_window) } else { n_window * n_seq };
        let n_ubatch = if options.ubatch_size == 0 { n_batch } else { options.ubatch_size.min(n_batch) };
        let unified = config.context.kv_unified;
        let n_ctx = if unified { n_batch.max(n_window) } else { n_window };
        let context = ContextOptions { n_ctx, n_seq, n_batch, n_ubatch, ..config.context };
        // As `scored` has them.
        let scored = (n_window - n_window / 2).saturating_sub(1) * n_seq;
        Ok(Wanted { context, outputs: if whole { n_batch } else { scored.min(n_batch) } })
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Cuts windows into the groups that go into one batch.
    pub(super) fn groups<'w>(&self, windows: &'w [Window]) -> impl Iterator<Item = &'w [Window]> {
        let (n_batch, n_seq) = (self.n_batch, self.n_seq);
        let mut rest = windows;
        std::iter::from_fn(move || {
            let mut tokens = 0;
            let more = rest.iter().take(n_seq).take_while(|window| {
                tokens += window.tokens.len();
                tokens <= n_batch
            });
            // A window that is longer than a batch goes alone, in parts.
            let n = more.count().max(1).min(rest.len());
            let (group, left) = rest.split_at(n);
            rest = left;
            (n > 0).then_some(group)
        })
    }

    /// Computes a group and hands its rows to `visit`, once or, where a window is longer than a batch, in parts.
    pub(super) fn run(
        &mut self,
        group: &[Window],
        observer: &mut dyn Observer,
        visit: &mut dyn FnMut(Rows<'_>, usize) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        self.context.clear()?;
        let longest = group.iter().map(|window| window.tokens.len()).max().unwrap_or(0);
        let mut begin = 0;
        while begin < longest {
            self.interrupt.check().map_err(|_| LlamaError::Interrupted)?;
            self.batch.clear();
            let mut places = Vec::new();
            let mut targets = Vec::new();
            for (sequence, window) in (0..).zip(group) {
                let end = (begin + self.n_batch).min(window.tokens.len());
                let Some(tokens) = window.tokens.get(begin..end) else { continue };
                let scored = scored(window);
                let outputs = scored.start.clamp(begin, end) - begin..scored.end.clamp(begin, end) - begin;
                places.extend(outputs.clone().map(|at| self.batch.len() + at));
                targets.extend(outputs.clone().map(|at| window.tokens[begin + at + 1]));
                let outputs = if self.whole { 0..tokens.len() } else { outputs };
                self.batch.push_with_outputs(sequence, begin as u32, tokens, outputs);
            }
            self.context.decode(&mut self.batch, observer)?;
            let logits =
                places.into_iter().map(|place| self.context.logits(place)?.ok_or(EvalError::NoLogits));
            let logits: Vec<&[f32]> = logits.collect::<Result<_, EvalError>>()?;
            visit(Rows { logits, targets }, self.threads)?;
            begin += self.n_batch;
        }
        Ok(())
    }
}
