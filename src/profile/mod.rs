//! From a corpus and a model to the usage of its experts.

mod corpus;
#[doc(hidden)]
pub mod exercise;
pub mod imatrix;
mod merge;
mod open;
#[cfg(feature = "llama")]
mod pass;
#[cfg(feature = "llama")]
mod routing;
mod tally;
mod usage;

pub use corpus::*;
pub use merge::{MergeError, Merged, merge};
pub use open::{OpenError, open};
#[cfg(feature = "llama")]
pub use pass::*;
#[cfg(feature = "llama")]
pub use routing::RoutingObserver;
pub use tally::*;
pub use usage::*;

#[cfg(test)]
pub(crate) mod fixture;
