//! How many experts may go before the loss passes a bound: tried by masking, before anything is written.

use super::eval::{eval_failure, room};
use crate::console::Console;
use crate::console::failure::Failure;
use crate::corpus::CorpusText;
use crate::evaluate::{self, EvalCorpus, Losses, Seen, TextOptions, WhatIf};
use crate::flags::llama::LlamaFlags;
use crate::flags::loading::Loaded;
use crate::flags::selection::Selection;
use crate::flags::texts::TextFlags;
use crate::moe::MoeModel;
use crate::plan::PlanError;
use crate::progress::{Interrupt, Unit, stage};
use crate::usage::Usage;

/// What the search needs.
pub struct Within<'a> {
    pub model: &'a MoeModel,
    pub loaded: &'a Loaded,
    pub corpora: &'a [CorpusText],
    pub usage: &'a Usage,
    pub selection: &'a Selection,
    pub texts: &'a TextFlags,
    pub llama: &'a LlamaFlags,
}

impl Within<'_> {
    /// The smallest number of experts whose mean KL divergence is at most `bound`.
    pub fn find(&self, bound: f64, console: Console, interrupt: Interrupt) -> Result<u32, Failure> {
        let options = self.llama.windows(&self.model.file, interrupt);
        let text_options = TextOptions::of(&options, self.texts.chunks, self.texts.parse_special);
        let cut = evaluate::windows(&self.loaded.model, self.corpora, Some(self.usage), text_options)
            .map_err(eval_failure)?;
        let (windows, entries): (Vec<EvalCorpus>, Vec<_>) = cut.into_iter().unzip();
        let planner = self.selection.planner(self.model, self.usage)?;
        let experts = self.model.chosen();
        let what_if = stage(&mut *console.progress(), "whole model", Unit::Tokens, |progress| {
            WhatIf::new(&self.loaded.model, experts, &options, &windows, room(), progress)
        });
        let mut what_if = what_if.map_err(eval_failure)?;
        let found = evaluate::smallest_within(&experts.possible_counts(), bound, |k| {
            let choice = match planner.choose(k) {
                Ok(choice) => choice,
                // A larger number may have room for the pins.
                Err(PlanError::PinCount { .. } | PlanError::PinGroup { .. }) => return Ok(f64::INFINITY),
                Err(error) => return Err(Failure::input(error)),
            };
            let name = format!("K = {k}");
            let losses = stage(&mut *console.progress(), &name, Unit::Tokens, |progress| {
                what_if.cut(&choice.keep, progress)
            });
            let kl = mean(&losses.map_err(eval_failure)?);
            console.remark(&format!("K = {k}: mean KL {kl:.4}"));
            Ok(kl)
        })?;
        let found = found.ok_or_else(|| Failure::input(anyhow::anyhow!("the model cannot be cut at all")))?;
        let scored: u64 = entries.iter().map(|entry| entry.scored).sum();
        let where_measured = if entries.iter().all(|entry| entry.seen == Some(Seen::HeldOut)) {
            "on windows that were left out of the profile"
        } else {
            "on the very text that was profiled, where a cut looks better than it is (--holdout 10% measures on the rest)"
        };
        console.remark(&format!(
            "K = {} is the smallest found with a mean KL of at most {bound}: {:.4} over {scored} tokens, measured \
             {where_measured}",
            found.k, found.kl
        ));
        Ok(found.k)
    }
}

fn mean(losses: &Losses) -> f64 {
    losses.all().and_then(|figures| figures.kl_mean()).unwrap_or(f64::INFINITY)
}
