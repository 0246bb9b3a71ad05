//! The sums of one layer over the tokens of a text.

use super::ActivationSums;
use serde::{Deserialize, Serialize};

/// Sums over the tokens that a layer routed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertSums {
    /// Tokens that the layer routed.
    pub n_tokens: u64,
    /// `[n_expert]`: tokens for which the expert was selected.
    pub count: Vec<u64>,
    /// `[n_expert]`: sum of the expert's final gate weights over those tokens; absent when only counts were collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Vec<f64>>,
    /// How strong the experts' outputs were; absent unless all was collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ActivationSums>,
}

impl ExpertSums {
    /// Sums of nothing, for `n_expert` experts.
    pub fn zero(n_expert: usize, with_weights: bool) -> Self {
        ExpertSums {
            n_tokens: 0,
            count: vec![0; n_expert],
            weight: with_weights.then(|| vec![0.0; n_expert]),
            activation: None,
        }
    }

    /// Sums of nothing, for as many experts as `other` has and with the same columns.
    pub fn zero_like(other: &ExpertSums) -> Self {
        let n_expert = other.count.len();
        ExpertSums {
            activation: other.activation.as_ref().map(|_| ActivationSums::zero(n_expert)),
            ..ExpertSums::zero(n_expert, other.weight.is_some())
        }
    }

    /// Adds `other`, which has as many experts; `None` when a count or a gate weight overflows.
    #[must_use = "None means that nothing useful was added"]
    pub fn add(&mut self, other: &ExpertSums) -> Option<()> {
        self.n_tokens = self.n_tokens.checked_add(other.n_tokens)?;
        for (sum, more) in self.count.iter_mut().zip(&other.count) {
            *sum = sum.checked_add(*more)?;
        }
        if let (Some(sums), Some(more)) = (&mut self.weight, &other.weight) {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum = Some(*sum + more).filter(|sum| sum.is_finite())?;
            }
        }
        if let (Some(sums), Some(more)) = (&mut self.activation, &other.activation) {
            sums.add(more)?;
        }
        Some(())
    }
}
