//! From a usage and a model to the number of experts, and to the plan.

use super::{
    Choice, Coverage, Coverages, KeepTarget, PLAN_SCHEMA, Pins, Plan, PlanCorpus, PlanError, PlanSource,
    choose, coverage,
};
use crate::moe::{Experts, KeptExperts};
use crate::score::{self, Blend, LayerScores, Score};
use crate::usage::Usage;
use std::collections::BTreeMap;
use std::error::Error as StdError;

/// Exact bytes of all files that would be written if so many experts were kept. Must not fall as the number grows.
pub type SizeOf<'a> = dyn Fn(u32) -> Result<u64, Box<dyn StdError + Send + Sync>> + 'a;

/// A model, its usage, and how the experts are ranked.
///
/// ```no_run
/// use moeslice::moe::MoeModel;
/// use moeslice::plan::{Pins, Planner};
/// use moeslice::score::{Blend, Score};
/// use moeslice::usage;
/// use std::path::Path;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = MoeModel::open(Path::new("model.gguf"))?;
/// let usage = usage::open(Path::new("usage.json"), &model)?.usage;
/// // Experts 3 and 17 of layer 0 stay whatever their score, and both corpora count alike.
/// let (pins, blend): (Pins, Blend) = ("0:3,0:17".parse()?, "dev=0.5,pm=0.5".parse()?);
/// let planner = Planner::new(&usage, model.chosen(), Score::Weight, &blend, &pins)?;
/// for k in model.chosen().possible_counts() {
///     let coverage = planner.coverage(&planner.choose(k)?.keep);
///     println!("{k} experts cover {:.3} of the routing, {:.3} in the worst layer", coverage.all.mean, coverage.all.worst);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Planner<'a> {
    usage: &'a Usage,
    experts: &'a Experts,
    score: Score,
    blend: &'a Blend,
    pins: &'a Pins,
    scores: BTreeMap<u32, LayerScores>,
}

impl<'a> Planner<'a> {
    /// Ranks the experts. That the usage is that of the model ([`Usage::model_match`]) is for the caller to check.
    ///
    /// # Errors
    /// When they cannot be ranked, or a pinned expert does not exist.
    pub fn new(
        usage: &'a Usage,
        experts: &'a Experts,
        score: Score,
        blend: &'a Blend,
        pins: &'a Pins,
    ) -> Result<Self, PlanError> {
        pins.check(experts)?;
        let scores = score::scores(usage, score, blend)?;
        Ok(Planner { usage, experts, score, blend, pins, scores })
    }

    /// This planner with another usage of the same model, such as half of its own.
    ///
    /// # Errors
    /// When the usage cannot be ranked.
    pub fn with_usage<'b>(&self, usage: &'b Usage) -> Result<Planner<'b>, PlanError>
    where
        'a: 'b,
    {
        Planner::new(usage, self.experts, self.score, self.blend, self.pins)
    }

    /// The usage.
    pub fn usage(&self) -> &Usage {
        self.usage
    }

    /// The experts of the model.
    pub fn experts(&self) -> &Experts {
        self.experts
    }

    /// What the experts are ranked by.
    pub fn score(&self) -> Score {
        self.score
    }

    /// The weights of the corpora.
    pub fn blend(&self) -> &Blend {
        self.blend
    }

    /// The kept experts for `k`.
    ///
    /// # Errors
    /// As [`choose()`].
    pub fn choose(&self, k: u32) -> Result<Choice, PlanError> {
        choose(self.experts, &self.scores, k, self.pins)
    }

    /// The share of the routing that kept experts cover; all of it when nothing was routed.
    pub fn coverage(&self, keep: &KeptExperts) -> Coverages {
        let nothing = Coverage { mean: 1.0, worst: 1.0, worst_layer: 0 };
        coverage(self.usage, keep).unwrap_or(Coverages { all: nothing, corpora: BTreeMap::new() })
    }

    /// The number of experts that `keep` asks for.
    ///
    /// # Errors
    /// When the model cannot keep such a number, no file is small enough, or the experts cannot be chosen.
    pub fn resolve(&self, keep: &KeepTarget, size: &SizeOf<'_>) -> Result<u32, PlanError> {
        if let Some(k) = keep.count(self.experts)? {
            return Ok(k);
        }
        match *keep {
            KeepTarget::Size(limit) => largest_fitting(self.experts, limit, size),
            KeepTarget::Coverage { share, each } => {
                for k in self.experts.possible_counts() {
                    // The sets grow with k, and so does what they cover: the first is the smallest. Too many pins for
                    // a small k do not stand against a larger one.
                    match self.choose(k) {
                        Ok(choice) if self.coverage(&choice.keep).reach(share, each) => return Ok(k),
                        Ok(_) | Err(PlanError::PinCount { .. } | PlanError::PinGroup { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(self.experts.n_expert)
            }
            KeepTarget::Count(k) => Ok(k),
            KeepTarget::Percent(_) => Ok(self.experts.n_expert),
        }
    }

    /// The plan for `keep`.
    ///
    /// # Errors
    /// As [`Planner::resolve`] and [`Planner::choose`].
    pub fn plan(&self, keep: &KeepTarget, size: &SizeOf<'_>, source: PlanSource) -> Result<Plan, PlanError> {
        let k = self.resolve(keep, size)?;
        let Choice { keep: lists, ties } = self.choose(k)?;
        let corpora = self.usage.corpora.iter();
        Ok(Plan {
            schema: PLAN_SCHEMA.into(),
            source: Some(source),
            score: Some(self.score.to_string()),
            blend: (*self.blend != Blend::Tokens).then(|| self.blend.to_string()),
            always_keep: (!self.pins.is_empty()).then(|| self.pins.to_string()),
            target: Some(keep.to_string()),
            k,
            ties: Some(ties),
            corpora: corpora
                .map(|corpus| PlanCorpus {
                    name: corpus.name.clone(),
                    tokens: corpus.tokens,
                    sha256: corpus.sha256(),
                })
                .collect(),
            keep: lists,
        })
    }
}

/// The largest possible number of experts whose file has at most `limit` bytes.
///
/// # Errors
/// When even the smallest is larger, or a size cannot be told.
pub fn largest_fitting(experts: &Experts, limit: u64, size: &SizeOf<'_>) -> Result<u32, PlanError> {
    let bytes = |k| size(k).map_err(|error| PlanError::Size { k, error });
    let possible = experts.possible_counts();
    let (mut fitting, mut above) = (0, possible.len());
    while fitting < above {
        let middle = fitting + (above - fitting) / 2;
        if bytes(possible[middle])? <= limit {
            fitting = middle + 1;
        } else {
            above = middle;
        }
    }
    match fitting {
        0 => {
            let k = possible.first().copied().unwrap_or(experts.n_expert);
            Err(PlanError::TooSmall { limit, k, bytes: bytes(k)? })
        }
        _ => Ok(possible[fitting - 1]),
    }
}
