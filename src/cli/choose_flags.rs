//! The flags that say how many experts stay, and which.

use super::failure::Failure;
use super::source::Source;
use crate::moe::{Provenance, PrunedShape, ShardPolicy};
use crate::plan::{Keep, Pins, Plan, PlanError, PlanSource, Planner};
use crate::profile::Usage;
use crate::score::{Blend, Score};
use clap::Args;

/// How experts are ranked and chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing the experts")]
pub struct ChooseFlags {
    /// What ranks the experts: frequency or weight
    #[arg(long, value_name = "SCORE", default_value_t = Score::Frequency)]
    pub score: Score,
    /// Experts that stay whatever their score
    #[arg(long, value_name = "LAYER:ID,…")]
    pub always_keep: Option<Pins>,
    /// Share of each corpus, such as dev=0.5,pm=0.5; by default each token counts alike
    #[arg(long, value_name = "NAME=SHARE,…")]
    pub blend: Option<Blend>,
}

/// The flags, with what holds where one was not given.
pub struct Chooser {
    score: Score,
    pins: Pins,
    blend: Blend,
}

/// The help of `--keep`, which some commands require and some do not.
pub const KEEP_HELP: &str =
    "How many experts stay: 192, 75%, coverage:0.98, coverage:0.98@each, or size:14GiB";

impl ChooseFlags {
    /// What the flags say.
    pub fn chooser(&self) -> Chooser {
        Chooser {
            score: self.score,
            pins: self.always_keep.clone().unwrap_or_default(),
            blend: self.blend.clone().unwrap_or_default(),
        }
    }
}

impl Chooser {
    /// The plan for `keep`, from a usage of the model.
    pub fn plan(
        &self,
        source: &Source,
        usage: &Usage,
        keep: &Keep,
        shards: ShardPolicy,
    ) -> Result<Plan, Failure> {
        let planner = self.planner(source, usage)?;
        let origin = PlanSource::new(source.model.path(), &source.identity);
        let size = |k| self.file_bytes(source, usage, &keep.to_string(), k, shards);
        planner.plan(keep, &size, origin).map_err(Failure::input)
    }

    /// Ranks the experts.
    pub fn planner<'a>(&'a self, source: &'a Source, usage: &'a Usage) -> Result<Planner<'a>, Failure> {
        Planner::new(usage, &source.experts, self.score, &self.blend, &self.pins).map_err(Failure::input)
    }

    /// Exact bytes of all files of the model when `k` experts stay.
    pub fn file_bytes(
        &self,
        source: &Source,
        usage: &Usage,
        target: &str,
        k: u32,
        shards: ShardPolicy,
    ) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        let corpora =
            corpus_lines(usage.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.sha256())));
        let provenance = Provenance::new(&source.model, &source.identity, self.score.name(), target, corpora);
        let shape = PrunedShape::of_count(&source.model, &source.experts, k, &provenance)?;
        Ok(shape.file_bytes(shards)?.iter().sum())
    }

    /// What can be refused before a profile; `counted` is what a profile will count. Gives K where it is known.
    pub fn check_early(&self, source: &Source, keep: &Keep) -> Result<Option<u32>, Failure> {
        let nextn = source.experts.nextn_that_runs();
        let counted = |layer: &crate::moe::ExpertLayer| {
            layer.kind != crate::moe::LayerKind::NextN || nextn == Some(layer.layer)
        };
        crate::plan::check_early(&source.experts, keep, &self.pins, counted).map_err(|error| match error {
            error @ (PlanError::PinLayer { .. } | PlanError::PinId { .. }) => {
                Failure::Arguments(error.into())
            }
            error => Failure::input(error),
        })
    }
}

/// How corpora are named in the provenance of a cut.
pub fn corpus_lines<'a>(corpora: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    corpora.map(|(name, sha256)| format!("{name} sha256:{sha256}")).collect()
}
