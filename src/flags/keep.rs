//! What `run --keep` takes: all that `prune --keep` takes, and a bound on the loss.

use crate::plan::KeepTarget;
use std::fmt;
use std::str::FromStr;

/// How many experts stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunKeep {
    /// What the model and the usage decide.
    Target(KeepTarget),
    /// The smallest number whose mean KL divergence from the whole model is at most this.
    Kl(f64),
}

impl FromStr for RunKeep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(bound) = text.strip_prefix("kl:") else {
            return text.parse().map(RunKeep::Target).map_err(|error| {
                format!("{error}; run also takes a bound on the mean KL divergence (kl:0.05)")
            });
        };
        match bound.parse::<f64>() {
            Ok(bound) if bound > 0.0 && bound.is_finite() => Ok(RunKeep::Kl(bound)),
            _ => Err(format!(
                "{text:?}: a bound on the mean KL divergence is a number above 0, such as kl:0.05"
            )),
        }
    }
}

impl fmt::Display for RunKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunKeep::Target(target) => target.fmt(f),
            RunKeep::Kl(bound) => write!(f, "kl:{bound}"),
        }
    }
}

impl RunKeep {
    /// What can be checked of it before anything is profiled. A bound may end at any number, as a coverage may.
    pub fn early(&self) -> KeepTarget {
        match *self {
            RunKeep::Target(target) => target,
            RunKeep::Kl(_) => KeepTarget::Coverage { share: 1.0, each: false },
        }
    }
}
