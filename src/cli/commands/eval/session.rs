//! One run of `eval`: the loaded model and its texts, and how each kind of measurement goes.

use super::args::EvalArgs;
use super::candidates::Candidate;
use super::failure::eval_failure;
use super::memory;
use crate::console::failure::Failure;
use crate::console::{Console, print, print_styled};
use crate::corpus::CorpusText;
use crate::evaluate::{
    self, EVAL_SCHEMA, EvalCorpus, EvalRow, EvalRun, Evaluation, Losses, Noise, Reference, Scorer, Seen,
    StoredRows, TextOptions, Unobserved, WhatIf,
};
use crate::flags::llama::LlamaFlags;
use crate::flags::loading::Loaded;
use crate::llama::Model;
use crate::moe::MoeModel;
use crate::progress::{Interrupt, Progress, Unit, stage};
use crate::report::SweepTable;
use crate::usage::{ProfiledModel, Usage};
use crate::windows::WindowOptions;
use std::time::Instant;

/// What is at hand while `eval` runs.
pub struct Session<'a> {
    pub(super) args: &'a EvalArgs,
    pub(super) model: &'a MoeModel,
    pub(super) loaded: Loaded,
    pub(super) options: WindowOptions,
    pub(super) console: Console,
    pub(super) interrupt: Interrupt,
    pub(super) corpora: Vec<EvalCorpus>,
    /// Places of the corpora that count together.
    together: Vec<usize>,
    begin: Instant,
}

impl<'a> Session<'a> {
    /// Loads the model and cuts the texts into the windows that are measured. The base is to be loaded beside it.
    pub fn new(
        args: &'a EvalArgs,
        model: &'a MoeModel,
        corpora: &[CorpusText],
        (usage, base, is_sweep): (Option<&Usage>, Option<&MoeModel>, bool),
        (console, interrupt): (Console, Interrupt),
    ) -> Result<(Self, Evaluation), Failure> {
        let options = args.llama.windows(&model.file, interrupt);
        let texts = TextOptions::of(&options, args.texts.chunks, args.texts.parse_special);
        let cut = |model: &Model| evaluate::windows(model, corpora, usage, texts).map_err(eval_failure);
        // The texts are cut before the model is loaded: how many contexts there are depends on their length.
        let mut windows = None;
        let mut contexts = |planned: &Model| {
            let found = windows.insert(cut(planned)?);
            let rows = found.iter().map(|(corpus, _)| corpus.n_scored()).sum();
            if args.cache.is_given() {
                return memory::of_loop(planned, &model.experts, &options);
            }
            if base.is_some() || !is_sweep && args.noise.is_none() {
                return memory::of_one(planned, &model.experts, &options);
            }
            memory::of_several(planned, args, &model.experts, (&options, rows, room()))
        };
        let others = base.map(|base| memory::of_base(args, base, &options, (console, interrupt)));
        let others = others.transpose()?.unwrap_or_default();
        let loaded =
            args.llama.load_model_beside(model, false, (console, interrupt), &mut contexts, &others)?;
        let cut = windows.map_or_else(|| cut(&loaded.model), Ok)?;
        let (windows, mut entries): (Vec<_>, Vec<_>) = cut.into_iter().unzip();
        entries.iter_mut().for_each(|entry| entry.other = args.texts.is_other(&entry.name));
        let together = (0..entries.len()).filter(|&at| !entries[at].other).collect();
        let mut evaluation = Evaluation {
            schema: EVAL_SCHEMA.into(),
            model: ProfiledModel::new(model.path(), &model.identity),
            base: None,
            run: EvalRun {
                moeslice: env!("CARGO_PKG_VERSION").into(),
                llama_cpp: loaded.backend.version(),
                devices: loaded.devices.clone(),
                ctx_size: options.ctx_size,
                batch_size: options.batch_size,
                ubatch_size: options.ubatch_size,
                wall_seconds: 0.0,
            },
            corpora: entries,
            rows: Vec::new(),
            noise: None,
            knee: None,
            remarks: Vec::new(),
        };
        if usage.is_some() {
            evaluation.remarks = what_is_seen(&evaluation);
        }
        let begin = Instant::now();
        let session =
            Session { args, model, loaded, options, console, interrupt, corpora: windows, together, begin };
        Ok((session, evaluation))
    }

    /// Seconds since the texts were ready.
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Measures the model alone, or with its noise.
    pub fn alone(&self, evaluation: &mut Evaluation) -> Result<(), Failure> {
        if self.args.noise.is_some() {
            let mut what_if = self.whole(evaluation)?;
            return self.noise_of(&mut what_if, evaluation);
        }
        let mut scorer = self.scorer()?;
        let losses = stage(&mut *self.console.progress(), "measuring", Unit::Tokens, |progress| {
            evaluate::measure(&mut scorer, &self.corpora, None, &mut Unobserved, progress)
        });
        evaluation.rows.push(self.row(&losses.map_err(eval_failure)?, None)?);
        Ok(())
    }

    /// Measures the model beside its base: first the base, whose predictions are kept, or both in step.
    pub fn compare(&self, base: &MoeModel, evaluation: &mut Evaluation) -> Result<(), Failure> {
        evaluation.base = Some(ProfiledModel::new(base.path(), &base.identity));
        let loaded = self.load(&self.args.llama, base)?;
        let mut scorer = Scorer::new(&loaded.model, &base.experts, &self.options).map_err(eval_failure)?;
        let rows = self.corpora.iter().map(EvalCorpus::n_scored).sum();
        let bytes = StoredRows::bytes(scorer.n_vocab(), rows);
        let mut reference = if bytes <= room().min(base.file.total_bytes().max(1 << 30)) {
            let mut stored = StoredRows::new(scorer.n_vocab(), rows).map_err(eval_failure)?;
            let kept = stage(&mut *self.console.progress(), "base", Unit::Tokens, |progress| {
                evaluate::measure_and_keep(&mut scorer, &self.corpora, &mut Unobserved, &mut stored, progress)
            });
            kept.map_err(eval_failure)?;
            drop(scorer);
            Reference::Stored(stored)
        } else {
            Reference::in_step(scorer)
        };
        if let Some(noise) = &self.args.noise {
            let (other, options, against) = self.otherwise(noise, base)?;
            let model = other.as_ref().map_or(&loaded.model, |other| &other.model);
            let mut scorer = Scorer::new(model, &base.experts, &options).map_err(eval_failure)?;
            let losses = stage(&mut *self.console.progress(), "noise", Unit::Tokens, |progress| {
                let reference = Some(&mut reference);
                evaluate::measure(&mut scorer, &self.corpora, reference, &mut Unobserved, progress)
            });
            evaluation.noise = self.noise_row(&losses.map_err(eval_failure)?, against);
        }
        let mut scorer = self.scorer()?;
        let losses = stage(&mut *self.console.progress(), "measuring", Unit::Tokens, |progress| {
            let reference = Some(&mut reference);
            evaluate::measure(&mut scorer, &self.corpora, reference, &mut Unobserved, progress)
        });
        evaluation.rows.push(self.row(&losses.map_err(eval_failure)?, None)?);
        Ok(())
    }

    /// Tries cuts, one after the other, and shows each row as it comes.
    pub fn sweep(&self, candidates: &[Candidate], evaluation: &mut Evaluation) -> Result<(), Failure> {
        let names = evaluation.corpora.iter().map(|corpus| corpus.name.clone()).collect();
        let labels = candidates.iter().filter_map(|one| one.plan.as_ref().or(one.score.as_ref()));
        let label_width = labels.map(|label| label.chars().count()).max().unwrap_or(0);
        let table = SweepTable::new(names, label_width, self.console.style());
        let show = |row: &EvalRow| if self.args.json { Ok(()) } else { print(&table.row(row)) };
        let mut what_if = self.whole(evaluation)?;
        if !self.args.json {
            print_styled(&table.header())?;
        }
        evaluation.rows.iter().try_for_each(show)?;
        if self.args.noise.is_some() {
            self.noise_of(&mut what_if, evaluation)?;
        }
        for (at, candidate) in candidates.iter().enumerate() {
            let name = format!("{} of {}, K = {}", at + 1, candidates.len(), candidate.k);
            let losses = stage(&mut *self.console.progress(), &name, Unit::Tokens, |progress| {
                what_if.cut(&candidate.selected.keep, &mut Unnamed(progress))
            });
            let row = self.row(&losses.map_err(eval_failure)?, Some(candidate))?;
            show(&row)?;
            evaluation.rows.push(row);
        }
        if !self.args.json {
            print_styled(&table.rest(&evaluation.rows))?;
        }
        Ok(())
    }

    /// Measures the whole model, whose row comes first.
    fn whole(&self, evaluation: &mut Evaluation) -> Result<WhatIf<'_, '_>, Failure> {
        let what_if = stage(&mut *self.console.progress(), "whole model", Unit::Tokens, |progress| {
            let (model, experts) = (&self.loaded.model, self.model.chosen());
            WhatIf::new(model, experts, &self.options, &self.corpora, room(), progress)
        });
        let what_if = what_if.map_err(eval_failure)?;
        evaluation.rows.push(self.row(what_if.whole(), None)?);
        Ok(what_if)
    }

    fn noise_of(&self, what_if: &mut WhatIf<'_, '_>, evaluation: &mut Evaluation) -> Result<(), Failure> {
        let Some(noise) = &self.args.noise else { return Ok(()) };
        let (other, options, against) = self.otherwise(noise, self.model)?;
        let model = other.as_ref().map_or(&self.loaded.model, |other| &other.model);
        let mut scorer = Scorer::new(model, &self.model.experts, &options).map_err(eval_failure)?;
        let losses = stage(&mut *self.console.progress(), "noise", Unit::Tokens, |progress| {
            what_if.beside(&mut scorer, &mut Unobserved, progress)
        });
        evaluation.noise = self.noise_row(&losses.map_err(eval_failure)?, against);
        Ok(())
    }

    /// Another way to compute the same: in ubatches of another size, or on another device.
    fn otherwise(
        &self,
        noise: &str,
        model: &MoeModel,
    ) -> Result<(Option<Loaded>, WindowOptions, String), Failure> {
        let mut options = self.options;
        let ubatch = match noise {
            "" => Some((options.ubatch_size / 4).max(1)),
            text => text.parse().ok().filter(|&ubatch| ubatch > 0),
        };
        if let Some(ubatch) = ubatch {
            options.ubatch_size = ubatch;
            return Ok((None, options, format!("in ubatches of {ubatch} tokens")));
        }
        let flags =
            LlamaFlags { device: noise.split(',').map(str::to_owned).collect(), ..self.args.llama.clone() };
        let loaded = self.load(&flags, model)?;
        let against = format!("on {}", loaded.devices.join(", "));
        Ok((Some(loaded), options, against))
    }

    /// Loads another model, which is measured once.
    fn load(&self, flags: &LlamaFlags, model: &MoeModel) -> Result<Loaded, Failure> {
        let mut contexts = |planned: &Model| memory::of_one(planned, &model.experts, &self.options);
        flags.load_model(model, false, (self.console, self.interrupt), &mut contexts)
    }

    fn noise_row(&self, losses: &Losses, against: String) -> Option<Noise> {
        Some(Noise { against, all: losses.of(&self.together)? })
    }

    pub(super) fn scorer(&self) -> Result<Scorer<'_>, Failure> {
        Scorer::new(&self.loaded.model, &self.model.experts, &self.options).map_err(eval_failure)
    }

    /// The row of a measurement: of the file, or of a cut that was tried.
    pub(super) fn row(&self, losses: &Losses, candidate: Option<&Candidate>) -> Result<EvalRow, Failure> {
        let all = losses.of(&self.together);
        let all = all.ok_or_else(|| Failure::running(anyhow::anyhow!("not a single token was scored")))?;
        let names = self.corpora.iter().map(|corpus| corpus.name.clone());
        let each = (0..self.corpora.len()).filter_map(|at| losses.of(&[at]));
        let coverage = candidate.and_then(|candidate| candidate.coverage);
        Ok(EvalRow {
            k: candidate.map_or(self.model.experts.n_expert, |candidate| candidate.k),
            bytes: candidate.map_or(self.model.file.total_bytes(), |candidate| candidate.bytes),
            score: candidate.and_then(|candidate| candidate.score.clone()),
            plan: candidate.and_then(|candidate| candidate.plan.clone()),
            masked: candidate.is_some(),
            coverage_mean: coverage.map(|coverage| coverage.mean),
            coverage_worst: coverage.map(|coverage| coverage.worst),
            worst_layer: coverage.map(|coverage| coverage.worst_layer),
            routing: None,
            all,
            corpora: names.zip(each).collect(),
        })
    }
}

/// Passes on how far the work is, and keeps the name of the stage.
pub(super) struct Unnamed<'p>(pub(super) &'p mut dyn Progress);

impl Progress for Unnamed<'_> {
    fn begin(&mut self, _: &str, _: Unit) {}
    fn update(&mut self, done: u64, total: u64) {
        self.0.update(done, total);
    }
    fn name(&mut self, _: &str) {}
    fn end(&mut self) {}
}

/// Bytes that temporary files may take: half of what is free.
pub fn room() -> u64 {
    crate::sys::free_bytes(&std::env::temp_dir()).map_or(1 << 30, |free| free / 2)
}

/// What the figures are worth, from what the usage knows of the texts.
fn what_is_seen(evaluation: &Evaluation) -> Vec<String> {
    let names = |seen: Seen| {
        let corpora = evaluation.corpora.iter().filter(|corpus| corpus.seen == Some(seen));
        let names: Vec<&str> = corpora.map(|corpus| corpus.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mut remarks = Vec::new();
    if let Some(names) = names(Seen::HeldOut) {
        remarks.push(format!("measured on windows that the profile left out of its counts: {names}"));
    }
    if let Some(names) = names(Seen::Profiled) {
        remarks.push(format!(
            "measured on the very text that was profiled, where a cut looks better than it is: {names}; profile with \
             --holdout 10% to measure on the rest"
        ));
    }
    match names(Seen::Unseen) {
        Some(names) => remarks.push(format!("not profiled: {names}")),
        None => remarks.push(
            "nothing is known about other work: no text was given that was not profiled (--other NAME=PATH)"
                .into(),
        ),
    }
    remarks
}
