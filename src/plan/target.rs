//! What a user asks to keep: a number of experts, or what decides one.

use super::PlanError;
use crate::moe::Experts;
use crate::units::{ExactSize, parse_bytes};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// What is to be kept.
///
/// ```
/// use moeslice::plan::KeepTarget;
///
/// let keep: KeepTarget = "coverage:0.98@each".parse()?;
/// assert_eq!(keep, KeepTarget::Coverage { share: 0.98, each: true });
/// assert_eq!("192".parse(), Ok(KeepTarget::Count(192)));
/// assert_eq!("size:14GiB".parse(), Ok(KeepTarget::Size(14 << 30)));
/// # Ok::<(), moeslice::plan::KeepTargetError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum KeepTarget {
    /// So many experts of each layer.
    Count(u32),
    /// This percentage of the experts, rounded up, and up to the next number that the model allows.
    Percent(f64),
    /// The smallest number at which the kept experts cover this share of the routing in every layer.
    Coverage {
        /// Share of the selections, above 0 and up to 1.
        share: f64,
        /// Of every corpus, not only of all together.
        each: bool,
    },
    /// The largest number whose file has at most so many bytes.
    Size(u64),
}

/// A target that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("cannot keep {text:?}: {why}")]
#[non_exhaustive]
pub struct KeepTargetError {
    /// The text.
    pub text: String,
    /// What is wrong with it, and what may be meant.
    pub why: String,
}

/// What can be kept, as it is written.
const FORMS: &str =
    "write a count (192), a percentage (75%), coverage:0.98, coverage:0.98@each or size:14GiB";

impl FromStr for KeepTarget {
    type Err = KeepTargetError;

    fn from_str(text: &str) -> Result<Self, KeepTargetError> {
        let answer = |why| KeepTargetError { text: text.into(), why };
        let fail = |why: &str| answer(format!("{why}; {FORMS}"));
        if let Some(point) = decimal_comma(text) {
            return Err(answer(format!("a fraction is written with a point, not a comma: {point}")));
        }
        if text.starts_with("kl:") {
            return Err(answer(
                "a bound on the KL divergence has to be measured, which `run` does".to_owned(),
            ));
        }
        if let Some(rest) = text.strip_prefix("coverage:") {
            let (share, each) = match rest.split_once('@') {
                None => (rest, false),
                Some((share, "each")) => (share, true),
                Some(_) => return Err(fail("only @each can follow a coverage")),
            };
            let share: f64 = share.parse().map_err(|_| fail("the coverage is not a number"))?;
            if !(share > 0.0 && share <= 1.0) {
                return Err(fail("a coverage is above 0 and at most 1"));
            }
            return Ok(KeepTarget::Coverage { share, each });
        }
        if let Some(size) = text.strip_prefix("size:") {
            return parse_bytes(size).map(KeepTarget::Size).map_err(fail);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| fail("the percentage is not a number"))?;
            if !(percent > 0.0 && percent <= 100.0) {
                return Err(fail("a percentage is above 0 and at most 100"));
            }
            return Ok(KeepTarget::Percent(percent));
        }
        match text.parse() {
            Ok(count) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(KeepTarget::Count(count)),
            _ => match text.parse::<f64>() {
                Ok(share) if share > 0.0 && share <= 1.0 => Err(answer(format!(
                    "it may be {}% of the experts, or coverage:{text}, the fewest that cover so much of the routing",
                    round(share * 100.0)
                ))),
                _ => Err(fail("this is none of what can be kept")),
            },
        }
    }
}

/// A text whose only fault is a comma in place of a decimal point, mended.
fn decimal_comma(text: &str) -> Option<String> {
    let (before, after) = text.split_once(',')?;
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let between_digits = digit(before.chars().next_back()) && digit(after.chars().next());
    (between_digits && !after.contains(',')).then(|| format!("{before}.{after}"))
}

/// A percentage without the remainders that its computation leaves.
fn round(percent: f64) -> f64 {
    (percent * 1e9).round() / 1e9
}

impl fmt::Display for KeepTarget {
    /// The text that [`KeepTarget::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            KeepTarget::Count(count) => write!(f, "{count}"),
            KeepTarget::Percent(percent) => write!(f, "{percent}%"),
            KeepTarget::Coverage { share, each } => {
                write!(f, "coverage:{share}{}", if each { "@each" } else { "" })
            }
            KeepTarget::Size(bytes) => write!(f, "size:{}", ExactSize(bytes)),
        }
    }
}

impl KeepTarget {
    /// What to tell of `k`, the number that a percentage came to: when the model cannot keep what it asked for, the next
    /// number that it can may be far above.
    pub fn rounding(&self, experts: &Experts, k: u32) -> Option<String> {
        let KeepTarget::Percent(percent) = *self else { return None };
        let (n, asked) = (experts.n_expert, share_of(experts.n_expert, percent));
        let kept = round(100.0 * f64::from(k) / f64::from(n.max(1)));
        (k > asked).then(|| {
            format!(
                "{self} would be {asked} of {n} experts: {k} stay ({kept:.1} %), the fewest from there on that this model \
                 can keep"
            )
        })
    }

    /// The number of experts, where the model alone decides it: before anything is profiled.
    ///
    /// # Errors
    /// When the model cannot keep that number.
    pub fn count(&self, experts: &Experts) -> Result<Option<u32>, PlanError> {
        match *self {
            KeepTarget::Count(k) => {
                experts.check_count(k)?;
                Ok(Some(k))
            }
            KeepTarget::Percent(percent) if percent < 100.0 => {
                check_cuttable(experts)?;
                let k = experts.next_count(share_of(experts.n_expert, percent));
                Ok(Some(k.unwrap_or(experts.n_expert)))
            }
            KeepTarget::Percent(_) => Ok(Some(experts.n_expert)),
            KeepTarget::Coverage { .. } | KeepTarget::Size(_) => check_cuttable(experts).map(|()| None),
        }
    }
}

/// `percent` of `n`, rounded up. A result within a billionth of a whole number is that number: the division of a
/// decimal percentage leaves such remainders.
fn share_of(n: u32, percent: f64) -> u32 {
    let exact = f64::from(n) * percent / 100.0;
    let near = exact.round();
    let share = if (exact - near).abs() < 1e-9 * f64::from(n) { near } else { exact.ceil() };
    (share as u32).max(1)
}

/// Refuses a model that can keep nothing but all of its experts.
fn check_cuttable(experts: &Experts) -> Result<(), PlanError> {
    let n = experts.n_expert;
    if n > 1 && experts.possible_counts() == [n] {
        experts.check_count(n - 1)?;
    }
    Ok(())
}
