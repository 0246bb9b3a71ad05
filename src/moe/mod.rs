//! What an expert is: the tensors that hold experts, the counts that a model can keep, and the shape of a cut.
//!
//! Everything that differs between architectures is data: [`crate::arch`] has one row for each, and `names` knows
//! every tensor name that llama.cpp gives to a block. [`Experts::read`] applies both to one file and refuses what it
//! does not understand, because a tensor that is copied whole beside experts that were cut destroys a model without a
//! word. [`MoeModel`] joins a file, its experts and its identity.

mod classified;
mod count;
mod error;
mod experts;
mod hyperparameters;
mod id_map;
mod identity;
mod kept;
mod model;
mod mtp;
mod names;
mod pruned;
mod sketch;

pub use count::{CountError, CountLimit};
pub use error::MoeError;
pub use experts::{ExpertLayer, ExpertTensor, Experts, LayerKind};
pub use hyperparameters::Groups;
pub use id_map::{IdMap, IdMapError};
pub use identity::Identity;
pub(crate) use identity::fingerprint;
pub use kept::{KeptError, KeptExperts};
pub use model::MoeModel;
pub use names::Role;
pub use pruned::{FileShape, Provenance, PrunedError, PrunedShape, ShardPolicy};
pub use sketch::{LayerSketch, RouterMatch, RouterSketch};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod test_experts;
#[cfg(test)]
pub(crate) mod test_model;
