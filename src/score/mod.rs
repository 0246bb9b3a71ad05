//! How much each expert of a layer matters, from a usage: the ranking that a cut is made by.
//!
//! A score looks at one layer at a time; its values are never compared across layers.

mod blend;

pub use blend::{Blend, BlendError};

use crate::usage::{ExpertSums, LayerUsage, Usage};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What experts are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Score {
    /// |T_j|: the number of tokens for which the expert was selected.
    #[default]
    Frequency,
    /// Σ g_j(t) over t in T_j: the sum of the expert's final gate weights over those tokens.
    Weight,
}

impl Score {
    /// Every score, in the order in which help texts list them.
    pub const ALL: [Score; 2] = [Score::Frequency, Score::Weight];

    /// The name on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Score::Frequency => "frequency",
            Score::Weight => "weight",
        }
    }

    /// The column of `sums` that the score is made from, `[n_expert]`; `None` when it was not collected.
    fn column(self, sums: &ExpertSums) -> Option<Vec<f64>> {
        match self {
            Score::Frequency => Some(sums.count.iter().map(|&count| count as f64).collect()),
            Score::Weight => sums.weight.clone(),
        }
    }
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
        Some(LayerScores { value: score.column(sums)?, tie: sums.weight.clone() })
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
    let shares = blend.shares(usage.corpora.iter().map(|corpus| corpus.name.as_str()))?;
    usage
        .layers
        .iter()
        .filter(|layer| layer.total.n_tokens > 0)
        .map(|layer| {
            let column = |wanted| match &shares {
                None => wanted_column(&layer.total, wanted, layer.layer),
                Some(shares) => blended(layer, wanted, shares),
            };
            let value = column(score)?;
            let tie = if layer.total.weight.is_some() { Some(column(Score::Weight)?) } else { None };
            Ok((layer.layer, LayerScores { value, tie }))
        })
        .collect()
}

/// Σ share · column / tokens over the corpora, `[n_expert]`.
fn blended(layer: &LayerUsage, score: Score, shares: &BTreeMap<&str, f64>) -> Result<Vec<f64>, ScoreError> {
    let mut sum = vec![0.0; layer.total.count.len()];
    for (&corpus, &share) in shares.iter().filter(|(_, share)| **share > 0.0) {
        let sums = layer.corpora.get(corpus).filter(|sums| sums.n_tokens > 0);
        let sums = sums.ok_or_else(|| ScoreError::NoTokens { layer: layer.layer, corpus: corpus.into() })?;
        let column = wanted_column(sums, score, layer.layer)?;
        for (sum, value) in sum.iter_mut().zip(column) {
            *sum += share * (value / sums.n_tokens as f64);
        }
    }
    Ok(sum)
}

fn wanted_column(sums: &ExpertSums, score: Score, layer: u32) -> Result<Vec<f64>, ScoreError> {
    let column = score.column(sums).ok_or(ScoreError::NoWeights { layer, score })?;
    match column.iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((expert, &value)) => Err(ScoreError::NotFinite { layer, expert, score, value }),
        None => Ok(column),
    }
}

#[cfg(test)]
mod tests;
