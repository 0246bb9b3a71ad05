//! From a corpus and a model to the usage of its experts.

pub mod imatrix;
mod merge;
mod open;
mod usage;

pub use merge::{MergeError, Merged, merge};
pub use open::{OpenError, open};
pub use usage::*;

#[cfg(test)]
pub(crate) mod fixture;
