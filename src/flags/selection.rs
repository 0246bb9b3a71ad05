//! The flags that say how many experts stay, and which.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::moe::{ExpertLayer, LayerKind, MoeModel, PrunedError, ShardPolicy};
use crate::plan::{self, KeepTarget, Pins, Plan, PlanError, PlanSource, Planner};
#[cfg(feature = "llama")]
use crate::score::ScoreNeeds;
use crate::score::{self, Blend, Score};
use crate::usage::{self, Usage};
use clap::Args;
use std::path::Path;

/// How experts are ranked and chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing the experts")]
pub struct SelectionFlags {
    #[arg(long, value_name = "SCORE", help = score_help())]
    pub score: Option<Score>,
    /// Experts that stay whatever their score
    #[arg(long, value_name = "LAYER:ID,…")]
    pub always_keep: Option<Pins>,
    /// Keep super experts: those with by far the greatest activations. Needs a profile with --score-data full
    #[arg(long)]
    pub protect_super: bool,
    /// Share of each corpus, such as dev=0.5,pm=0.5; by default each token counts alike
    #[arg(long, value_name = "NAME=SHARE,…")]
    pub blend: Option<Blend>,
}

/// The flags, with what holds where one was not given.
pub struct Selection {
    score: Option<Score>,
    pins: Pins,
    protect_super: bool,
    blend: Blend,
}

/// The help of `--keep`, which some commands require and some do not.
pub const KEEP_HELP: &str =
    "How many experts stay: 192, 75%, coverage:0.98, coverage:0.98@each, or size:14GiB";

/// The help of `--score`.
fn score_help() -> String {
    let names = Score::ALL.map(Score::name).join(", ");
    format!("What ranks the experts: {names}; by default the best of those that the usage has the data for")
}

impl SelectionFlags {
    /// The flag that was given, if any was: a plan leaves nothing to choose.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.score.is_some(), "--score"),
            (self.always_keep.is_some(), "--always-keep"),
            (self.protect_super, "--protect-super"),
            (self.blend.is_some(), "--blend"),
        ];
        flags.iter().find(|(given, _)| *given).map(|(_, flag)| *flag)
    }

    /// What the flags say.
    pub fn selection(&self) -> Selection {
        Selection {
            score: self.score,
            pins: self.always_keep.clone().unwrap_or_default(),
            protect_super: self.protect_super,
            blend: self.blend.clone().unwrap_or_default(),
        }
    }
}

impl Selection {
    /// What the flags mean for this usage: the best score that its data allow, and the super experts that it shows.
    pub fn resolved(mut self, usage: &Usage) -> Result<Selection, Failure> {
        self.score = Some(self.score.unwrap_or_else(|| Score::best_of(usage)));
        if self.protect_super {
            let found = score::super_experts(usage).ok_or_else(|| {
                Failure::input(anyhow::anyhow!(
                    "the usage does not tell how strong the experts' outputs are, which --protect-super needs; profile \
                     with --score-data full"
                ))
            })?;
            self.pins = self.pins.with(found);
        }
        Ok(self)
    }

    /// Whether an expert stays whatever its score.
    #[cfg(feature = "llama")]
    pub fn is_pinned(&self, layer: u32, id: u32) -> bool {
        self.pins.contains(layer, id)
    }

    /// The share of each corpus.
    #[cfg(feature = "llama")]
    pub fn blend(&self) -> &Blend {
        &self.blend
    }

    /// What ranks the experts.
    pub fn score(&self) -> Score {
        self.score.unwrap_or_default()
    }

    /// The plan for `keep`, from a usage of the model.
    pub fn plan(
        &self,
        model: &MoeModel,
        usage: &Usage,
        keep: &KeepTarget,
        shards: ShardPolicy,
    ) -> Result<Plan, Failure> {
        let planner = self.planner(model, usage)?;
        let origin = PlanSource::new(model.path(), &model.identity);
        let size = |k| Ok(self.file_bytes(model, usage, &keep.to_string(), k, shards)?);
        planner.plan(keep, &size, origin).map_err(Failure::input)
    }

    /// Ranks the experts.
    pub fn planner<'a>(&'a self, model: &'a MoeModel, usage: &'a Usage) -> Result<Planner<'a>, Failure> {
        Planner::new(usage, model.chosen(), self.score(), &self.blend, &self.pins).map_err(Failure::input)
    }

    /// Exact bytes of all files of the model when `k` experts stay.
    pub fn file_bytes(
        &self,
        model: &MoeModel,
        usage: &Usage,
        target: &str,
        k: u32,
        shards: ShardPolicy,
    ) -> Result<u64, PrunedError> {
        let corpora =
            corpus_lines(usage.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.sha256())));
        model.cut_bytes(k, &model.provenance(self.score().name(), target, corpora), shards)
    }

    /// What can be refused before a profile. Gives K where it is known, and says so when it is more than was asked for.
    pub fn check_early(
        &self,
        model: &MoeModel,
        keep: &KeepTarget,
        console: Console,
    ) -> Result<Option<u32>, Failure> {
        let mtp = model.experts.mtp_that_runs();
        let counted = |layer: &ExpertLayer| layer.kind != LayerKind::Mtp || mtp == Some(layer.layer);
        let of_model = |error: PlanError| {
            let text = format!("{}: {error}", model.path().display());
            anyhow::Error::new(error).context(text)
        };
        if let KeepTarget::Size(limit) = *keep {
            // The texts that a cut notes about its making are not known yet, and small.
            let notes = model.provenance(self.score().name(), &keep.to_string(), Vec::new());
            let size = |k| Ok(model.cut_bytes(k, &notes, ShardPolicy::Keep)?);
            plan::largest_fitting(model.chosen(), limit, &size)
                .map_err(|error| Failure::Input(of_model(error)))?;
        }
        let k =
            plan::check_early(model.chosen(), keep, &self.pins, counted).map_err(|error| match error {
                error @ (PlanError::PinLayer { .. } | PlanError::PinId { .. }) => {
                    Failure::Arguments(error.into())
                }
                error => Failure::Input(of_model(error)),
            })?;
        if let Some(text) = k.and_then(|k| keep.rounding(model.chosen(), k)) {
            console.remark(&format!("--keep {text}"));
        }
        Ok(k)
    }

    /// What can be refused once the corpora are known, and before they are profiled.
    #[cfg(feature = "llama")]
    pub fn check_corpora<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        data: ScoreNeeds,
    ) -> Result<(), Failure> {
        match self.score.map(|score| (score, score.needs())) {
            Some((score, needs)) if needs > data => {
                let (what, flag) = match needs {
                    ScoreNeeds::Activations => ("the norms of the experts' outputs", "full"),
                    _ => ("gate weights", "weights"),
                };
                return Err(Failure::arguments(format!(
                    "--score {score} needs {what}, which --score-data {flag} collects"
                )));
            }
            _ if self.protect_super && data < ScoreNeeds::Activations => {
                return Err(Failure::arguments("--protect-super needs --score-data full"));
            }
            _ => {}
        }
        let names: Vec<&str> = names.collect();
        self.blend.shares(names.into_iter()).map(drop).map_err(|error| Failure::Arguments(error.into()))
    }
}

/// How corpora are named in the provenance of a cut.
pub fn corpus_lines<'a>(corpora: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    corpora.map(|(name, sha256)| format!("{name} sha256:{sha256}")).collect()
}

/// Reads the usage in `path`, a usage file or an imatrix, and checks that it is that of the model. Counts of layers
/// that are not to choose from are left out.
pub fn open_usage(path: &Path, model: &MoeModel, console: Console) -> Result<Usage, Failure> {
    let imported = usage::open(path, model).map_err(Failure::input)?;
    for text in &imported.remarks {
        console.remark(text);
    }
    let mut usage = imported.usage;
    usage.layers.retain(|layer| !model.passes_over(layer.layer));
    Ok(usage)
}
