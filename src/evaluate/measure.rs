//! The losses of texts: each scored token, alone or against a base.

use super::EvalError;
use super::figures::{BaseLoss, Figures, TokenLoss};
use super::reference::{Reference, StoredRows};
use super::scorer::{EvalCorpus, Scorer};
use super::softmax::{Normaliser, difference};
use crate::llama::Observer;
use crate::progress::Progress;
use crate::windows::{Window, for_rows};
use std::cell::RefCell;

thread_local! {
    /// A row of the base, decoded.
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The losses of a measurement, by corpus and in the order of the tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// One entry a corpus.
    pub corpora: Vec<Vec<TokenLoss>>,
}

impl Losses {
    /// Tokens that were scored.
    pub fn n_scored(&self) -> usize {
        self.corpora.iter().map(Vec::len).sum()
    }

    /// The figures of all corpora together.
    pub fn all(&self) -> Option<Figures> {
        Figures::of(self.corpora.iter().flatten())
    }

    /// The figures of the corpora at these places together.
    pub fn of(&self, places: &[usize]) -> Option<Figures> {
        Figures::of(places.iter().filter_map(|&at| self.corpora.get(at)).flatten())
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
    measure_until(scorer, corpora, reference, observer, &|_| false, progress)
}

/// As [`measure`], but ends as soon as `is_enough` says so of the losses up to then, and gives those.
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
) -> Result<Losses, EvalError> {
    if let Some(reference) = reference.as_deref_mut() {
        reference.rewind();
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
                return Ok(losses);
            }
            done += group.iter().map(|window| window.tokens.len() as u64).sum::<u64>();
            progress.update(done, total);
        }
    }
    Ok(losses)
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
    let mut losses = Vec::new();
    scorer.run(group, observer, &mut |rows, threads| {
        let base = match reference.as_deref_mut() {
            Some(reference) => Some(reference.rows(rows.logits.len())?),
            None => None,
        };
        let found: Vec<Result<TokenLoss, EvalError>> = for_rows(rows.logits.len(), threads, |at| {
            let logits = rows.logits[at];
            let normaliser = Normaliser::of(logits).ok_or(EvalError::NotNumbers)?;
            let target = usize::try_from(rows.targets[at]).unwrap_or(usize::MAX);
            let base = match base {
                Some(base) => Some(SCRATCH.with_borrow_mut(|scratch| {
                    let base = base.row(at, scratch)?;
                    let found = difference(logits, normaliser, base);
                    let nll = -f64::from(*base.get(target).ok_or(EvalError::NotNumbers)?);
                    Ok::<_, EvalError>(BaseLoss { nll, kl: found.kl, same_top: found.same_top })
                })?),
                None => None,
            };
            let logit = *logits.get(target).ok_or(EvalError::NotNumbers)?;
            Ok(TokenLoss { nll: -f64::from(normaliser.log_probability(logit)), base })
        });
        for loss in found {
            losses.push(loss?);
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
    observer: &mut dyn Observer,
    keep: &mut StoredRows,
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
            scorer.run(group, observer, &mut |rows, threads| {
                found.extend(keep.push(&rows, threads)?);
                Ok(())
            })?;
            done += group.iter().map(|window| window.tokens.len() as u64).sum::<u64>();
            progress.update(done, total);
        }
        losses.corpora.push(found);
    }
    Ok(losses)
}
