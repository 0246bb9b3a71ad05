//! A model that is measured as if it had been cut, again and again, while it is loaded once and nothing is written.

use super::measure::{Losses, measure, measure_and_keep, measure_until};
use super::reference::{Reference, StoredRows};
use super::scorer::{EvalCorpus, Scorer, Unobserved};
use super::{EvalError, ExpertMask};
use crate::llama::Model;
use crate::moe::{Experts, KeptExperts};
use crate::preflight::Wanted;
use crate::progress::Progress;
use crate::windows::WindowOptions;

/// A loaded model, the texts that it is measured on, and what it makes of them whole.
pub struct WhatIf<'m, 'a> {
    scorer: Scorer<'m>,
    experts: &'a Experts,
    corpora: &'a [EvalCorpus],
    reference: Reference<'m>,
    whole: Losses,
}

impl<'m, 'a> WhatIf<'m, 'a> {
    /// Measures the whole model. Its predictions are kept when they take at most `room` bytes; otherwise the whole model
    /// is computed again beside each cut.
    ///
    /// # Errors
    /// As [`measure`].
    pub fn new(
        model: &'m Model,
        experts: &'a Experts,
        options: &WindowOptions,
        corpora: &'a [EvalCorpus],
        room: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self, EvalError> {
        let mut scorer = Scorer::new(model, experts, options)?;
        let rows = corpora.iter().map(EvalCorpus::n_scored).sum();
        let (reference, whole) = if StoredRows::bytes(scorer.n_vocab(), rows) <= room {
            let mut stored = StoredRows::new(scorer.n_vocab(), rows)?;
            let losses = measure_and_keep(&mut scorer, corpora, &mut Unobserved, &mut stored, progress)?;
            (Reference::Stored(stored), losses)
        } else {
            let losses = measure(&mut scorer, corpora, None, &mut Unobserved, progress)?;
            (Reference::in_step(Scorer::new(model, experts, options)?), losses)
        };
        Ok(WhatIf { scorer, experts, corpora, reference, whole })
    }

    /// The contexts that [`WhatIf::new`] makes for texts of which `rows` tokens are scored. `model` may be planned alone.
    ///
    /// # Errors
    /// As [`Scorer::wanted`].
    pub fn contexts(
        model: &Model,
        experts: &Experts,
        options: &WindowOptions,
        rows: u64,
        room: u64,
    ) -> Result<Vec<Wanted>, EvalError> {
        let wanted = Scorer::wanted(model, experts, options)?;
        let is_stored = StoredRows::bytes(model.vocab().len(), rows) <= room;
        Ok(vec![wanted; if is_stored { 1 } else { 2 }])
    }

    /// The losses of the whole model.
    pub fn whole(&self) -> &Losses {
        &self.whole
    }

    /// The texts.
    pub fn corpora(&self) -> &'a [EvalCorpus] {
        self.corpora
    }

    /// The losses of the model that keeps these experts, against the whole one.
    ///
    /// # Errors
    /// When the model cannot be cut so, or as [`measure`].
    pub fn cut(&mut self, kept: &KeptExperts, progress: &mut dyn Progress) -> Result<Losses, EvalError> {
        self.try_cut(kept, &|_| false, progress)
    }

    /// As [`WhatIf::cut`], but ends as soon as `is_enough` says so of the losses up to then, and gives those.
    ///
    /// # Errors
    /// As [`WhatIf::cut`].
    pub fn try_cut(
        &mut self,
        kept: &KeptExperts,
        is_enough: &dyn Fn(&Losses) -> bool,
        progress: &mut dyn Progress,
    ) -> Result<Losses, EvalError> {
        let mut mask = ExpertMask::new(self.experts, kept)?;
        let reference = Some(&mut self.reference);
        let losses =
            measure_until(&mut self.scorer, self.corpora, reference, &mut mask, is_enough, progress)?;
        mask.check_reached()?;
        Ok(losses)
    }

    /// The losses of `other`, a context of the same or another model, against the whole one.
    ///
    /// # Errors
    /// As [`measure`].
    pub fn beside(
        &mut self,
        other: &mut Scorer<'_>,
        observer: &mut dyn crate::llama::Observer,
        progress: &mut dyn Progress,
    ) -> Result<Losses, EvalError> {
        measure(other, self.corpora, Some(&mut self.reference), observer, progress)
    }
}
