//! The flags that say how many experts stay, and which.

use super::failure::Failure;
use super::source::Source;
use crate::moe::{ExpertLayer, LayerKind, Provenance, PrunedShape, ShardPolicy};
use crate::plan::{self, Keep, Pins, Plan, PlanError, PlanSource, Planner};
use crate::profile::Usage;
use crate::score::{Blend, Score};
use clap::Args;

/// How experts are ranked and chosen.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Choosing the experts")]
pub struct ChooseFlags {
    #[arg(long, value_name = "SCORE", help = format!("What ranks the experts: frequency or weight [default: {}]", DEFAULT_SCORE))]
    pub score: Option<Score>,
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

/// What ranks the experts unless another score is asked for.
const DEFAULT_SCORE: Score = Score::Frequency;

/// The help of `--keep`, which some commands require and some do not.
pub const KEEP_HELP: &str =
    "How many experts stay: 192, 75%, coverage:0.98, coverage:0.98@each, or size:14GiB";

impl ChooseFlags {
    /// The flag that was given, if any was: a plan leaves nothing to choose.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            (self.score.is_some(), "--score"),
            (self.always_keep.is_some(), "--always-keep"),
            (self.blend.is_some(), "--blend"),
        ];
        flags.iter().find(|(given, _)| *given).map(|(_, flag)| *flag)
    }

    /// What the flags say.
    pub fn chooser(&self) -> Chooser {
        Chooser {
            score: self.score.unwrap_or(DEFAULT_SCORE),
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
        Planner::new(usage, source.chosen(), self.score, &self.blend, &self.pins).map_err(Failure::input)
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
        let shape = PrunedShape::of_count(&source.model, source.written(), k, &provenance)?;
        Ok(shape.file_bytes(shards)?.iter().sum())
    }

    /// What can be refused before a profile. Gives K where it is known.
    pub fn check_early(&self, source: &Source, keep: &Keep) -> Result<Option<u32>, Failure> {
        let nextn = source.experts.nextn_that_runs();
        let counted = |layer: &ExpertLayer| layer.kind != LayerKind::NextN || nextn == Some(layer.layer);
        let of_model =
            |error: &dyn std::fmt::Display| anyhow::anyhow!("{}: {error}", source.model.path().display());
        if let Keep::Size(limit) = *keep {
            let size = |k| self.bytes_of(source, keep, k);
            plan::largest_fitting(source.chosen(), limit, &size)
                .map_err(|error| Failure::Input(of_model(&error)))?;
        }
        plan::check_early(source.chosen(), keep, &self.pins, counted).map_err(|error| match error {
            error @ (PlanError::PinLayer { .. } | PlanError::PinId { .. }) => {
                Failure::Arguments(error.into())
            }
            error => Failure::Input(of_model(&error)),
        })
    }

    /// What can be refused once the corpora are known, and before they are profiled.
    #[cfg(feature = "llama")]
    pub fn check_corpora<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        weights: bool,
    ) -> Result<(), Failure> {
        if self.score == Score::Weight && !weights {
            return Err(Failure::arguments(
                "--score weight needs gate weights, and --score-data counts collects none",
            ));
        }
        let names: Vec<&str> = names.collect();
        self.blend.shares(names.into_iter()).map(drop).map_err(|error| Failure::Arguments(error.into()))
    }

    /// Bytes of the model when `k` experts stay, but for the texts that a cut notes about its making.
    fn bytes_of(
        &self,
        source: &Source,
        keep: &Keep,
        k: u32,
    ) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        let target = keep.to_string();
        let provenance =
            Provenance::new(&source.model, &source.identity, self.score.name(), &target, Vec::new());
        let shape = PrunedShape::of_count(&source.model, source.written(), k, &provenance)?;
        Ok(shape.file_bytes(ShardPolicy::Keep)?.iter().sum())
    }
}

/// How corpora are named in the provenance of a cut.
pub fn corpus_lines<'a>(corpora: impl Iterator<Item = (&'a str, String)>) -> Vec<String> {
    corpora.map(|(name, sha256)| format!("{name} sha256:{sha256}")).collect()
}
