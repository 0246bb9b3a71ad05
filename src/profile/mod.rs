//! From a corpus and a model to the usage of its experts.

mod usage;

pub use usage::*;

#[cfg(test)]
pub(crate) mod fixture;
