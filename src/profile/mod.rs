//! From a corpus and a model to the usage of its experts.

mod chat;
mod corpus;
#[doc(hidden)]
pub mod exercise;
pub mod imatrix;
mod merge;
#[cfg(feature = "llama")]
mod nextn;
mod open;
#[cfg(feature = "llama")]
mod pass;
#[cfg(feature = "llama")]
mod pass_plan;
#[cfg(feature = "llama")]
mod routing;
mod tally;
mod usage;
#[cfg(feature = "llama")]
mod windows;

pub use chat::{ChatError, ChatReader, ChatTemplate, RenderedChat, Stretch};
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
