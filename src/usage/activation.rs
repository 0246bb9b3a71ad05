//! How strong the outputs of the experts are: what `--score-data full` adds to a usage.

use serde::{Deserialize, Serialize};

/// Sums over the tokens that an expert was selected for, `[n_expert]` each. f is the output of the expert before its gate
/// weight, g the final gate weight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ActivationSums {
    /// Σ ‖f‖₂.
    pub norm: Vec<f64>,
    /// Σ ‖f‖₂².
    pub norm_squared: Vec<f64>,
    /// Σ g · ‖f‖₂.
    pub weighted_norm: Vec<f64>,
    /// The greatest absolute value of an element of f.
    pub max: Vec<f64>,
}

impl ActivationSums {
    /// Sums of nothing.
    pub fn zero(n_expert: usize) -> Self {
        let zero = || vec![0.0; n_expert];
        ActivationSums { norm: zero(), norm_squared: zero(), weighted_norm: zero(), max: zero() }
    }

    /// The columns, with their names.
    pub fn columns(&self) -> [(&'static str, &[f64]); 4] {
        [
            ("norm", &self.norm),
            ("norm_squared", &self.norm_squared),
            ("weighted_norm", &self.weighted_norm),
            ("max", &self.max),
        ]
    }

    /// Adds `other`, which has as many experts; `None` when a sum overflows.
    #[must_use = "None means that nothing useful was added"]
    pub fn add(&mut self, other: &ActivationSums) -> Option<()> {
        for (sums, more) in [
            (&mut self.norm, &other.norm),
            (&mut self.norm_squared, &other.norm_squared),
            (&mut self.weighted_norm, &other.weighted_norm),
        ] {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum = Some(*sum + more).filter(|sum| sum.is_finite())?;
            }
        }
        for (max, more) in self.max.iter_mut().zip(&other.max) {
            *max = max.max(*more);
        }
        Some(())
    }

    /// What is left when `part` is taken away, for the tokens that `count` counts. Of the greatest values it is not known
    /// in which part they were: they stay.
    pub(super) fn without(&self, part: &ActivationSums, count: &[u64]) -> ActivationSums {
        let left = |all: &[f64], part: &[f64]| -> Vec<f64> {
            let pairs = all.iter().zip(part).zip(count);
            pairs.map(|((all, part), &count)| if count == 0 { 0.0 } else { (all - part).max(0.0) }).collect()
        };
        ActivationSums {
            norm: left(&self.norm, &part.norm),
            norm_squared: left(&self.norm_squared, &part.norm_squared),
            weighted_norm: left(&self.weighted_norm, &part.weighted_norm),
            max: self
                .max
                .iter()
                .zip(count)
                .map(|(max, &count)| if count == 0 { 0.0 } else { *max })
                .collect(),
        }
    }

    /// Checks the columns against the counts of the experts.
    pub(super) fn check(&self, count: &[u64]) -> Result<(), String> {
        for (name, column) in self.columns() {
            if column.len() != count.len() {
                return Err(format!(
                    "activation.{name} has {} values for {} experts",
                    column.len(),
                    count.len()
                ));
            }
            for (expert, (value, &count)) in column.iter().zip(count).enumerate() {
                if !value.is_finite() {
                    return Err(format!("activation.{name} of expert {expert} is not a number"));
                }
                if count == 0 && *value != 0.0 {
                    return Err(format!(
                        "expert {expert} was never selected and has activation.{name} {value}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether two are the same up to the order in which they were added.
    pub(super) fn is_close(&self, other: &ActivationSums) -> bool {
        let close = |a: &f64, b: &f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        let pairs = self.columns().into_iter().zip(other.columns());
        pairs.into_iter().all(|((_, a), (_, b))| a.iter().zip(b).all(|(a, b)| close(a, b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(norm: f64, max: f64) -> ActivationSums {
        ActivationSums {
            norm: vec![norm, 0.0],
            norm_squared: vec![norm * norm, 0.0],
            weighted_norm: vec![norm / 2.0, 0.0],
            max: vec![max, 0.0],
        }
    }

    #[test]
    fn sums_add_up_and_the_greatest_stays() {
        let mut joined = sums(3.0, 0.5);
        joined.add(&sums(4.0, 0.25)).unwrap();
        assert_eq!(joined.norm, [7.0, 0.0]);
        assert_eq!(joined.norm_squared, [25.0, 0.0]);
        assert_eq!(joined.max, [0.5, 0.0]);
        assert_eq!(joined.add(&sums(f64::MAX, 0.0)).and(joined.add(&sums(f64::MAX, 0.0))), None);
    }

    #[test]
    fn columns_are_held_against_the_counts() {
        sums(3.0, 0.5).check(&[2, 0]).unwrap();
        assert!(sums(3.0, 0.5).check(&[2, 0, 1]).unwrap_err().contains("2 values for 3 experts"));
        assert!(sums(3.0, 0.5).check(&[0, 1]).unwrap_err().contains("never selected"));
        assert!(sums(f64::NAN, 0.5).check(&[2, 0]).unwrap_err().contains("not a number"));
    }
}
