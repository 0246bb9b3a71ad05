//! Which part of a run a usage is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which part of a run a usage is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its number, from 1.
    pub index: u32,
    /// How many there are. Part 2 of 4 has the batches 2, 6, 10 and so on.
    pub of: u32,
    /// Batches that all parts together have; a window that is longer than a batch counts as one.
    pub batches: u64,
    /// Tokens that all parts together have.
    pub tokens: u64,
    /// What else a batch is computed with, `NAME=VALUE` each.
    pub settings: Vec<String>,
}

impl Part {
    /// Parts that a run can have.
    pub const MOST: u32 = 1 << 16;
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {}", self.index, self.of)
    }
}
