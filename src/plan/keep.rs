//! What a user asks to keep: a number of experts, or what decides one.

use super::PlanError;
use crate::moe::Experts;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The `--keep` of a cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keep {
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

/// A `--keep` that cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "--keep {text:?}: {why}; write a count (192), a percentage (75%), coverage:0.98, coverage:0.98@each or size:14GiB"
)]
pub struct KeepSyntaxError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Unit names and their bytes; the first of those that divide a size is the one that it is printed with.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for Keep {
    type Err = KeepSyntaxError;

    fn from_str(text: &str) -> Result<Self, KeepSyntaxError> {
        let fail = |why| KeepSyntaxError { text: text.into(), why };
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
            return Ok(Keep::Coverage { share, each });
        }
        if let Some(size) = text.strip_prefix("size:") {
            return bytes(size).map(Keep::Size).map_err(fail);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| fail("the percentage is not a number"))?;
            if !(percent > 0.0 && percent <= 100.0) {
                return Err(fail("a percentage is above 0 and at most 100"));
            }
            return Ok(Keep::Percent(percent));
        }
        match text.parse() {
            Ok(count) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Keep::Count(count)),
            _ => Err(fail("this is none of what can be kept")),
        }
    }
}

/// Reads `14GiB`, `14.5 GB` or a plain number of bytes, exactly; a fraction of a byte is dropped.
fn bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let scale = match unit {
        "" => 1,
        _ => {
            UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .ok_or("the unit is none of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB")?
                .1
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err("the size is not a number");
    }
    const LARGE: &str = "the size is too large";
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| LARGE)? };
    // Past 18 digits a fraction of a TiB is below a byte.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = fraction.parse::<u128>().unwrap_or(0);
    let below_one = parts * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    let bytes = u128::from(whole) * u128::from(scale) + below_one;
    match u64::try_from(bytes) {
        Ok(0) => Err("a size is above 0"),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(LARGE),
    }
}

impl fmt::Display for Keep {
    /// The text that [`Keep::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Keep::Count(count) => write!(f, "{count}"),
            Keep::Percent(percent) => write!(f, "{percent}%"),
            Keep::Coverage { share, each } => {
                write!(f, "coverage:{share}{}", if each { "@each" } else { "" })
            }
            Keep::Size(bytes) => {
                let unit = UNITS.iter().find(|(_, scale)| bytes.is_multiple_of(*scale));
                let (name, scale) = unit.expect("the last unit divides every number");
                write!(f, "size:{}{name}", bytes / scale)
            }
        }
    }
}

impl Keep {
    /// The number of experts, where the model alone decides it: before anything is profiled.
    ///
    /// # Errors
    /// When the model cannot keep that number.
    pub fn count(&self, experts: &Experts) -> Result<Option<u32>, PlanError> {
        match *self {
            Keep::Count(k) => {
                experts.check_keep(k)?;
                Ok(Some(k))
            }
            Keep::Percent(percent) if percent < 100.0 => {
                check_cuttable(experts)?;
                let k = experts.next_keep(share_of(experts.n_expert, percent));
                Ok(Some(k.unwrap_or(experts.n_expert)))
            }
            Keep::Percent(_) => Ok(Some(experts.n_expert)),
            Keep::Coverage { .. } | Keep::Size(_) => check_cuttable(experts).map(|()| None),
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
    if n > 1 && experts.possible_keeps() == [n] {
        experts.check_keep(n - 1)?;
    }
    Ok(())
}
