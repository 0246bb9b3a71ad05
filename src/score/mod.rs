//! How much each expert of a layer matters, from a usage: the ranking that a cut is made by.
//!
//! A score looks at one layer at a time; its values are never compared across layers.

mod blend;
mod exact;
mod guard;

pub use blend::{Blend, BlendError};
pub use guard::super_experts;

use crate::usage::{ExpertSums, LayerUsage, Usage};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What experts are ranked by. T_j are the tokens that an expert was selected for, g its final gate weight (normalised and
/// scaled, without the selection bias), f its output before the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Score {
    /// |T_j|: the number of tokens for which the expert was selected.
    #[default]
    Frequency,
    /// Σ g over T_j.
    Weight,
    /// Σ ‖f‖₂ over T_j.
    EanSum,
    /// The mean of ‖f‖₂ over T_j, also called MAN.
    EanMean,
    /// The mean of ‖f‖₂² over T_j.
    Msan,
    /// Σ g · ‖f‖₂ over T_j.
    WeightedEan,
    /// The mean of g · ‖f‖₂ over T_j (arXiv 2510.13999, equation 9).
    Reap,
}

/// What a usage has to hold for a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScoreNeeds {
    /// Counts, which every usage has.
    Counts,
    /// Gate weights.
    Weights,
    /// Norms of the experts' outputs.
    Activations,
}

impl Score {
    /// Every score, in the order in which help texts list them.
    pub const ALL: [Score; 7] = [
        Score::Frequency,
        Score::Weight,
        Score::EanSum,
        Score::EanMean,
        Score::Msan,
        Score::WeightedEan,
        Score::Reap,
    ];

    /// The name on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Score::Frequency => "frequency",
            Score::Weight => "weight",
            Score::EanSum => "ean-sum",
            Score::EanMean => "ean-mean",
            Score::Msan => "msan",
            Score::WeightedEan => "weighted-ean",
            Score::Reap => "reap",
        }
    }

    /// What a usage has to hold for it.
    pub fn needs(self) -> ScoreNeeds {
        match self {
            Score::Frequency => ScoreNeeds::Counts,
            Score::Weight => ScoreNeeds::Weights,
            _ => ScoreNeeds::Activations,
        }
    }

    /// The score that measurements show to be best of those that such data allow (`docs/quality.md`).
    pub fn best_for(data: ScoreNeeds) -> Score {
        match data {
            ScoreNeeds::Counts => Score::Frequency,
            ScoreNeeds::Weights => Score::Weight,
            ScoreNeeds::Activations => Score::WeightedEan,
        }
    }

    /// The best score that the data of `usage` allow in every layer.
    pub fn best_of(usage: &Usage) -> Score {
        let has = |pick: &dyn Fn(&ExpertSums) -> bool| {
            let mut layers = usage.layers.iter().filter(|layer| layer.total.n_tokens > 0).peekable();
            layers.peek().is_some() && layers.all(|layer| pick(&layer.total))
        };
        Score::best_for(if has(&|sums| sums.activation.is_some()) {
            ScoreNeeds::Activations
        } else if has(&|sums| sums.weight.is_some()) {
            ScoreNeeds::Weights
        } else {
            ScoreNeeds::Counts
        })
    }

    /// Whether the sum is divided by the number of tokens in T_j.
    fn is_mean(self) -> bool {
        matches!(self, Score::EanMean | Score::Msan | Score::Reap)
    }

    /// The sums of `sums` that the score is made from, `[n_expert]`; `None` when they were not collected.
    fn column(self, sums: &ExpertSums) -> Option<Vec<f64>> {
        let activation = sums.activation.as_ref();
        match self {
            Score::Frequency => Some(sums.count.iter().map(|&count| count as f64).collect()),
            Score::Weight => sums.weight.clone(),
            Score::EanSum | Score::EanMean => activation.map(|sums| sums.norm.clone()),
            Score::Msan => activation.map(|sums| sums.norm_squared.clone()),
            Score::WeightedEan | Score::Reap => activation.map(|sums| sums.weighted_norm.clone()),
        }
    }
}

/// Sums over tokens; an expert that no token went to has the mean 0.
fn means(mut sums: Vec<f64>, counts: &[f64]) -> Vec<f64> {
    for (sum, &count) in sums.iter_mut().zip(counts) {
        *sum = if count > 0.0 { *sum / count } else { 0.0 };
    }
    sums
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Score {
    type Err = ScoreError;

    fn from_str(text: &str) -> Result<Self, ScoreError> {
        Score::ALL
            .into_iter()
            .find(|score| score.name() == text)
            .ok_or_else(|| ScoreError::Unknown { text: text.into() })
    }
}

/// Why experts cannot be ranked.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ScoreError {
    /// No score of that name.
    #[error("no score is called {text:?}; there are {}", names())]
    Unknown {
        /// What was asked for.
        text: String,
    },
    /// The score needs gate weights and the usage has counts alone.
    #[error("layer {layer}: the usage has no gate weights, which score {score} needs")]
    NoWeights {
        /// First layer without.
        layer: u32,
        /// The score.
        score: Score,
    },
    /// The score needs the norms of outputs and the usage has none.
    #[error("layer {layer}: the usage has no norms of the experts' outputs, which score {score} needs")]
    NoActivations {
        /// First layer without.
        layer: u32,
        /// The score.
        score: Score,
    },
    /// A value is infinite or not a number.
    #[error("layer {layer}, expert {expert}: the {score} is {value}, not a finite number; profile again")]
    NotFinite {
        /// The layer.
        layer: u32,
        /// The expert.
        expert: usize,
        /// The score.
        score: Score,
        /// The value found.
        value: f64,
    },
    /// A corpus that has a share routed nothing through the layer.
    #[error("layer {layer}: corpus {corpus:?} has a share in the blend and no tokens in this layer")]
    NoTokens {
        /// The layer.
        layer: u32,
        /// The corpus.
        corpus: String,
    },
    /// The blend does not fit the corpora.
    #[error(transparent)]
    Blend(#[from] BlendError),
}

fn names() -> String {
    Score::ALL.map(Score::name).join(", ")
}

/// The scores of one layer's experts.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerScores {
    /// `[n_expert]`: the score; higher is kept.
    pub value: Vec<f64>,
    /// `[n_expert]`: blended gate weight, which decides between equal scores; absent when it was not collected.
    pub tie: Option<Vec<f64>>,
}

impl LayerScores {
    /// The scores of `sums` alone, which must hold what `score` is made from; `None` when it does not.
    pub fn of(sums: &ExpertSums, score: Score) -> Option<LayerScores> {
        let column = score.column(sums)?;
        let value = if score.is_mean() { means(column, &Score::Frequency.column(sums)?) } else { column };
        Some(LayerScores { value, tie: sums.weight.clone() })
    }

    /// Orders two experts, the more important one first: by score, then gate weight, then lower id.
    pub fn compare(&self, a: usize, b: usize) -> Ordering {
        self.compare_without_id(a, b).then(a.cmp(&b))
    }

    /// As [`LayerScores::compare`], but two experts that only their ids tell apart are equal.
    pub fn compare_without_id(&self, a: usize, b: usize) -> Ordering {
        let descending = |values: &[f64]| values[b].total_cmp(&values[a]);
        descending(&self.value).then_with(|| self.tie.as_deref().map_or(Ordering::Equal, descending))
    }

    /// All experts, the most important first.
    pub fn ranking(&self) -> Vec<u32> {
        let mut ids: Vec<usize> = (0..self.value.len()).collect();
        ids.sort_by(|&a, &b| self.compare(a, b));
        ids.into_iter().map(|id| id as u32).collect()
    }
}

/// Scores the experts of every layer of `usage`; the keys are layers. One that routed no token has no scores.
///
/// # Errors
/// When the usage lacks what the score is made from, a value is not finite (named with layer and expert), or the
/// blend does not name the usage's corpora.
pub fn scores(usage: &Usage, score: Score, blend: &Blend) -> Result<BTreeMap<u32, LayerScores>, ScoreError> {
    let shares = blend.stated(usage.corpora.iter().map(|corpus| corpus.name.as_str()))?;
    usage
        .layers
        .iter()
        .filter(|layer| layer.total.n_tokens > 0)
        .map(|layer| {
            let column = |wanted| match &shares {
                None => wanted_column(&layer.total, wanted, layer.layer),
                Some(shares) => blended(layer, wanted, shares),
            };
            let mut value = column(score)?;
            if score.is_mean() {
                value = means(value, &column(Score::Frequency)?);
            }
            let tie = if layer.total.weight.is_some() { Some(column(Score::Weight)?) } else { None };
            Ok((layer.layer, LayerScores { value, tie }))
        })
        .collect()
}

/// Σ share · column / tokens over the corpora, `[n_expert]`. Counts are summed exactly; gate weights, which come with
/// rounding of their own, in an order that depends on the terms alone.
fn blended(layer: &LayerUsage, score: Score, shares: &BTreeMap<&str, f64>) -> Result<Vec<f64>, ScoreError> {
    let mut parts = Vec::with_capacity(shares.len());
    for (&corpus, &share) in shares.iter().filter(|(_, share)| **share > 0.0) {
        let sums = layer.corpora.get(corpus).filter(|sums| sums.n_tokens > 0);
        let sums = sums.ok_or_else(|| ScoreError::NoTokens { layer: layer.layer, corpus: corpus.into() })?;
        parts.push((share, sums, wanted_column(sums, score, layer.layer)?));
    }
    let experts = 0..layer.total.count.len();
    if score == Score::Frequency {
        let corpora: Vec<(f64, u64)> = parts.iter().map(|(share, sums, _)| (*share, sums.n_tokens)).collect();
        let weights = exact::Weights::new(&corpora);
        let counts = |expert: usize| {
            parts.iter().map(move |(_, sums, _)| sums.count.get(expert).copied().unwrap_or(0))
        };
        return Ok(experts.map(|expert| weights.blend(counts(expert))).collect());
    }
    let all: f64 = parts.iter().map(|(share, ..)| share).sum();
    let term = |expert: usize, (share, sums, column): &(f64, &ExpertSums, Vec<f64>)| {
        share / all * (column.get(expert).copied().unwrap_or(0.0) / sums.n_tokens as f64)
    };
    let blend = |expert| {
        let mut terms: Vec<f64> = parts.iter().map(|part| term(expert, part)).collect();
        terms.sort_by(f64::total_cmp);
        terms.into_iter().sum()
    };
    Ok(experts.map(blend).collect())
}

fn wanted_column(sums: &ExpertSums, score: Score, layer: u32) -> Result<Vec<f64>, ScoreError> {
    let column = score.column(sums).ok_or(match score.needs() {
        ScoreNeeds::Activations => ScoreError::NoActivations { layer, score },
        _ => ScoreError::NoWeights { layer, score },
    })?;
    match column.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((expert, &value)) => Err(ScoreError::NotFinite { layer, expert, score, value }),
        None => Ok(column),
    }
}

#[cfg(test)]
mod tests;
