//! Windows through a model, and the loss of each token in their second halves.

use super::EvalError;
use super::figures::{BaseLoss, Figures, TokenLoss};
use super::reference::Reference;
use super::softmax::{Normaliser, difference};
use crate::llama::{Batch, Context, ContextOptions, LlamaError, Model, Node, ObserveError, Observer, Token};
use crate::moe::Experts;
use crate::progress::{Interrupt, Progress};
use crate::windows::{NoPass, PassConfig, PassNeeds, Window, WindowOptions, for_rows};
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

/// The losses of a measurement, by corpus and in the order of the tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// One entry a corpus.
    pub corpora: Vec<Vec<TokenLoss>>,
}

impl Losses {
    /// The figures of all corpora together.
    pub fn all(&self) -> Option<Figures> {
        Figures::of(self.corpora.iter().flatten())
    }

    /// The figures of the corpora at these places together.
    pub fn of(&self, places: &[usize]) -> Option<Figures> {
        Figures::of(places.iter().filter_map(|&at| self.corpora.get(at)).flatten())
    }
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
        let needs = PassNeeds { logits: true, ..PassNeeds::default() };
        let config = PassConfig::new(model, experts, options, needs)?;
        if !config.causal {
            let reason = "it fills in masked tokens, so it has no perplexity".into();
            return Err(NoPass { architecture: experts.architecture.clone(), reason }.into());
        }
        let n_vocab = model.vocab().len();
        let n_window = options.ctx_size.max(2);
        let window_bytes = u64::from(n_window / 2).saturating_mul(n_vocab as u64 * 4).max(1);
        let that_fit = u32::try_from(LOGIT_BYTES / window_bytes).unwrap_or(u32::MAX);
        let limit = if model.is_recurrent() { 1 } else { that_fit.clamp(1, crate::llama::max_sequences()) };
        let n_seq = (options.batch_size / n_window).clamp(1, limit);
        let n_batch = if n_seq == 1 { options.batch_size.clamp(1, n_window) } else { n_window * n_seq };
        let n_ubatch = if options.ubatch_size == 0 { n_batch } else { options.ubatch_size.min(n_batch) };
        let unified = config.context.kv_unified;
        let n_ctx = if unified { n_batch.max(n_window) } else { n_window };
        let context = ContextOptions { n_ctx, n_seq, n_batch, n_ubatch, ..config.context };
        Ok(Scorer {
            context: Context::new(model, &context)?,
            batch: Batch::new(),
            n_batch: n_batch as usize,
            n_vocab,
            threads: options.settings.threads_batch as usize,
            interrupt: options.settings.interrupt,
        })
    }

    /// Tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Cuts windows into the groups that go into one batch.
    fn groups<'w>(&self, windows: &'w [Window]) -> impl Iterator<Item = &'w [Window]> {
        let n_batch = self.n_batch;
        let mut rest = windows;
        std::iter::from_fn(move || {
            let mut tokens = 0;
            let more = rest.iter().take_while(|window| {
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

/// Runs all windows of `corpora` and gives the loss of each scored token, against `reference` where there is one.
/// `observer` rides along. `progress` is told of tokens.
///
/// # Errors
/// When llama.cpp or the observer fails, the logits are no numbers, or the user interrupts.
pub fn measure(
    scorer: &mut Scorer<'_>,
    corpora: &[EvalCorpus],
    reference: Option<&mut Reference<'_>>,
    observer: &mut dyn Observer,
    progress: &mut dyn Progress,
) -> Result<Losses, EvalError> {
    measure_until(scorer, corpora, reference, observer, &|_| false, progress).map(Option::unwrap_or_default)
}

/// As [`measure`], but ends with nothing as soon as `is_enough` says so of the losses up to then.
///
/// # Errors
/// As [`measure`].
pub fn measure_until(
    scorer: &mut Scorer<'_>,
    corpora: &[EvalCorpus],
    mut reference: Option<&mut Reference<'_>>,
    observer: &mut dyn Observer,
    is_enough: &dyn Fn(&Losses) -> bool,
    progress: &mut dyn Progress,
) -> Result<Option<Losses>, EvalError> {
    if let Some(reference) = reference.as_deref_mut() {
        reference.rewind()?;
    }
    let total: u64 = corpora.iter().map(EvalCorpus::n_tokens).sum();
    let mut done = 0;
    let mut losses = Losses::default();
    for corpus in corpora {
        progress.name(&corpus.name);
        losses.corpora.push(Vec::with_capacity(usize::try_from(corpus.n_scored()).unwrap_or(0)));
        let groups: Vec<&[Window]> = scorer.groups(&corpus.windows).collect();
        for group in groups {
            let found = losses_of(scorer, group, reference.as_deref_mut(), observer)?;
            losses.corpora.last_mut().into_iter().for_each(|losses| losses.extend_from_slice(&found));
            if is_enough(&losses) {
                return Ok(None);
            }
            done += group.iter().map(|window| window.tokens.len() as u64).sum::<u64>();
            progress.update(done, total);
        }
    }
    Ok(Some(losses))
}

/// The losses of the tokens of one group.
fn losses_of(
    scorer: &mut Scorer<'_>,
    group: &[Window],
    mut reference: Option<&mut Reference<'_>>,
    observer: &mut dyn Observer,
) -> Result<Vec<TokenLoss>, EvalError> {
    if let Some(reference) = reference.as_deref_mut() {
        reference.begin(group)?;
    }
    let n_vocab = scorer.n_vocab;
    let mut losses = Vec::new();
    scorer.run(group, observer, &mut |rows, threads| {
        let base = match reference.as_deref_mut() {
            Some(reference) => Some(reference.rows(rows.logits.len())?),
            None => None,
        };
        let found = for_rows(rows.logits.len(), threads, |at| {
            let logits = rows.logits[at];
            let normaliser = Normaliser::of(logits)?;
            let target = usize::try_from(rows.targets[at]).ok()?;
            let base = match base {
                Some(base) => {
                    let base = &base[at * n_vocab..(at + 1) * n_vocab];
                    let found = difference(logits, normaliser, base);
                    Some(BaseLoss {
                        nll: -f64::from(*base.get(target)?),
                        kl: found.kl,
                        same_top: found.same_top,
                    })
                }
                None => None,
            };
            let nll = -f64::from(normaliser.log_probability(*logits.get(target)?));
            Some(TokenLoss { nll, base })
        });
        for loss in found {
            losses.push(loss.ok_or(EvalError::NotNumbers)?);
        }
        Ok(())
    })?;
    Ok(losses)
}

/// As [`measure`] without a base, and keeps all log-probabilities for later comparisons.
///
/// # Errors
/// As [`measure`], and when they cannot be kept.
pub fn measure_and_keep(
    scorer: &mut Scorer<'_>,
    corpora: &[EvalCorpus],
    keep: &mut super::reference::StoredRows,
    progress: &mut dyn Progress,
) -> Result<Losses, EvalError> {
    let total: u64 = corpora.iter().map(EvalCorpus::n_tokens).sum();
    let mut done = 0;
    let mut losses = Losses::default();
    for corpus in corpora {
        progress.name(&corpus.name);
        let mut found = Vec::with_capacity(usize::try_from(corpus.n_scored()).unwrap_or(0));
        let groups: Vec<&[Window]> = scorer.groups(&corpus.windows).collect();
        for group in groups {
            scorer.run(group, &mut Unobserved, &mut |rows, threads| {
                found.extend(keep.push(&rows, threads)?);
                Ok(())
            })?;
            done += group.iter().map(|window| window.tokens.len() as u64).sum::<u64>();
            progress.update(done, total);
        }
        losses.corpora.push(found);
    }
    keep.finish()?;
    Ok(losses)
}
