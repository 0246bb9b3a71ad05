//! Sums that do not depend on the order in which they were added, so that the parts of a run add up to the run.

use super::{ActivationSums, ExpertSums};
use serde::{Deserialize, Serialize};

/// A sum without rounding: partial sums that do not overlap, the smallest first (J. R. Shewchuk, "Adaptive Precision
/// Floating-Point Arithmetic and Fast Robust Geometric Predicates", 1997, Grow-Expansion).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ExactSum(Vec<f64>);

impl ExactSum {
    /// Adds a finite number.
    pub fn add(&mut self, value: f64) {
        let (mut high, mut kept) = (value, 0);
        for at in 0..self.0.len() {
            let partial = self.0[at];
            let (large, small) = if high.abs() < partial.abs() { (partial, high) } else { (high, partial) };
            high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                self.0[kept] = low;
                kept += 1;
            }
        }
        self.0.truncate(kept);
        if high != 0.0 {
            self.0.push(high);
        }
    }

    /// Adds another sum.
    pub fn join(&mut self, other: &ExactSum) {
        other.0.iter().for_each(|partial| self.add(*partial));
    }

    /// The F64 that is nearest to the sum; of two, the even one.
    pub fn rounded(&self) -> f64 {
        let mut partials = self.0.iter().rev().copied();
        let (mut high, mut low) = (partials.next().unwrap_or(0.0), 0.0);
        for partial in partials.by_ref() {
            let before = high;
            high = before + partial;
            low = partial - (high - before);
            if low != 0.0 {
                break;
            }
        }
        // What is left below half a unit decides where the rest lies just between two numbers.
        if let Some(next) = partials.next()
            && low != 0.0
            && (low < 0.0) == (next < 0.0)
        {
            let twice = 2.0 * low;
            let moved = high + twice;
            if twice == moved - high {
                high = moved;
            }
        }
        high
    }
}

/// As [`ExpertSums`], without rounding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExactSums {
    /// Tokens that the layer routed.
    pub n_tokens: u64,
    /// `[n_expert]`: tokens for which the expert was selected.
    pub count: Vec<u64>,
    /// `[n_expert]`: sum of the expert's final gate weights over those tokens, as partial sums that do not overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Vec<ExactSum>>,
    /// How strong the experts' outputs were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<ExactActivation>,
}

/// As [`ActivationSums`], without rounding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExactActivation {
    /// Σ ‖f‖₂.
    pub norm: Vec<ExactSum>,
    /// Σ ‖f‖₂².
    pub norm_squared: Vec<ExactSum>,
    /// Σ g · ‖f‖₂.
    pub weighted_norm: Vec<ExactSum>,
    /// The greatest absolute value of an element of f.
    pub max: Vec<f64>,
}

impl ExactActivation {
    /// Sums of nothing.
    pub fn zero(n_expert: usize) -> Self {
        let zero = || vec![ExactSum::default(); n_expert];
        ExactActivation {
            norm: zero(),
            norm_squared: zero(),
            weighted_norm: zero(),
            max: vec![0.0; n_expert],
        }
    }

    /// Adds sums, which have as many experts.
    pub fn add(&mut self, more: &ActivationSums) {
        for (sums, more) in [
            (&mut self.norm, &more.norm),
            (&mut self.norm_squared, &more.norm_squared),
            (&mut self.weighted_norm, &more.weighted_norm),
        ] {
            sums.iter_mut()
                .zip(more)
                .filter(|(_, more)| **more != 0.0)
                .for_each(|(sum, more)| sum.add(*more));
        }
        self.take_max(&more.max);
    }

    fn join(&mut self, other: &ExactActivation) {
        for (sums, more) in [
            (&mut self.norm, &other.norm),
            (&mut self.norm_squared, &other.norm_squared),
            (&mut self.weighted_norm, &other.weighted_norm),
        ] {
            sums.iter_mut().zip(more).for_each(|(sum, more)| sum.join(more));
        }
        self.take_max(&other.max);
    }

    fn take_max(&mut self, other: &[f64]) {
        self.max.iter_mut().zip(other).for_each(|(max, more)| *max = max.max(*more));
    }

    /// The nearest sums in F64.
    pub fn rounded(&self) -> ActivationSums {
        ActivationSums {
            norm: rounded(&self.norm),
            norm_squared: rounded(&self.norm_squared),
            weighted_norm: rounded(&self.weighted_norm),
            max: self.max.clone(),
        }
    }
}

impl ExactSums {
    /// Sums of nothing, for `n_expert` experts.
    pub fn zero(n_expert: usize, with_weights: bool) -> Self {
        ExactSums {
            n_tokens: 0,
            count: vec![0; n_expert],
            weight: with_weights.then(|| vec![ExactSum::default(); n_expert]),
            activation: None,
        }
    }

    /// Adds counts and gate weights, which have as many experts; `None` when a count overflows.
    #[must_use = "None means that nothing useful was added"]
    pub fn add(&mut self, more: &ExpertSums) -> Option<()> {
        self.add_counts(more.n_tokens, &more.count)?;
        if let (Some(sums), Some(more)) = (&mut self.weight, &more.weight) {
            sums.iter_mut()
                .zip(more)
                .filter(|(_, more)| **more != 0.0)
                .for_each(|(sum, more)| sum.add(*more));
        }
        Some(())
    }

    /// Adds other sums with as many experts and the same columns; `None` when they are not, or a count overflows.
    #[must_use = "None means that nothing useful was added"]
    pub fn join(&mut self, other: &ExactSums) -> Option<()> {
        if self.count.len() != other.count.len()
            || self.weight.is_some() != other.weight.is_some()
            || self.activation.is_some() != other.activation.is_some()
        {
            return None;
        }
        self.add_counts(other.n_tokens, &other.count)?;
        if let (Some(sums), Some(more)) = (&mut self.weight, &other.weight) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| sum.join(more));
        }
        if let (Some(sums), Some(more)) = (&mut self.activation, &other.activation) {
            sums.join(more);
        }
        Some(())
    }

    fn add_counts(&mut self, n_tokens: u64, count: &[u64]) -> Option<()> {
        self.n_tokens = self.n_tokens.checked_add(n_tokens)?;
        for (sum, more) in self.count.iter_mut().zip(count) {
            *sum = sum.checked_add(*more)?;
        }
        Some(())
    }

    /// The nearest sums in F64.
    pub fn rounded(&self) -> ExpertSums {
        ExpertSums {
            n_tokens: self.n_tokens,
            count: self.count.clone(),
            weight: self.weight.as_deref().map(rounded),
            activation: self.activation.as_ref().map(ExactActivation::rounded),
        }
    }
}

fn rounded(sums: &[ExactSum]) -> Vec<f64> {
    sums.iter().map(ExactSum::rounded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum_of(values: impl IntoIterator<Item = f64>) -> ExactSum {
        let mut sum = ExactSum::default();
        values.into_iter().for_each(|value| sum.add(value));
        sum
    }

    #[test]
    fn nothing_is_lost_beside_large_numbers() {
        assert_eq!(sum_of([1e100, 1.0, -1e100, 1e-100]).rounded(), 1.0);
        assert_eq!(sum_of([]).rounded(), 0.0);
        assert_eq!(sum_of([0.1; 10]).rounded(), 1.0);
        // Just above the middle between 1 and the next number: up, though the rest alone would round to even.
        let half_unit = f64::EPSILON / 2.0;
        assert_eq!(sum_of([1.0, half_unit]).rounded(), 1.0);
        assert_eq!(sum_of([1.0, half_unit, 1e-40]).rounded(), 1.0 + f64::EPSILON);
    }

    proptest! {
        #[test]
        fn order_and_parts_make_no_difference(
            values in proptest::collection::vec(any::<f32>().prop_filter("finite", |value| value.is_finite()), 0..40),
            at in 0usize..40,
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let whole = sum_of(values.iter().copied());
            prop_assert_eq!(sum_of(values.iter().rev().copied()).rounded(), whole.rounded());
            let (first, second) = values.split_at(at.min(values.len()));
            let mut joined = sum_of(second.iter().copied());
            joined.join(&sum_of(first.iter().copied()));
            prop_assert_eq!(joined.rounded(), whole.rounded());
            let text = serde_json::to_string(&whole).unwrap();
            prop_assert_eq!(serde_json::from_str::<ExactSum>(&text).unwrap(), whole);
        }
    }
}
