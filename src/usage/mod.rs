//! The usage file: how often each expert of each layer was selected, and with how much gate weight.
//!
//! [`Usage`] is the file, schema `moeslice.usage/1`. [`merge()`] joins usages of one model, [`imatrix`] takes one from the
//! counts of `llama-imatrix`, and [`open()`] reads either for a model at hand.

mod activation;
mod check;
mod exact;
mod file;
mod halves;
mod held_out;
pub mod imatrix;
mod merge;
mod model_match;
mod open;
mod part;
mod parts;
mod sums;
#[cfg(test)]
pub(crate) mod test_usage;

pub use activation::ActivationSums;
pub use check::{AllEqual, check_not_all_equal};
pub use exact::{ExactActivation, ExactSum, ExactSums};
pub use file::{Corpus, CorpusFile, LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage, UsageError};
pub use held_out::HeldOut;
pub use merge::{MergeError, Merged, merge};
pub use model_match::ModelMatch;
pub use open::{OpenError, open};
pub use part::Part;
pub use parts::PartError;
pub use sums::ExpertSums;
