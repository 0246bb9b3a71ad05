//! What an expert is: the architectures, the tensors that hold experts, and what one model file holds.
//!
//! Everything that differs between architectures is data: [`families`] has one row an architecture of llama.cpp
//! v0.8.0 that routes tokens to experts, and [`classify`] knows every tensor name that llama.cpp gives to a block.
//! [`Experts::read`] applies both to one file and refuses what it does not understand, because a tensor that is
//! copied whole beside experts that were cut destroys a model without a word.

mod error;
mod experts;
mod family;
mod id_map;
mod identity;
mod keep;
mod layout;
mod names;
mod nextn;
mod pruned;

pub use error::MoeError;
pub use experts::{ExpertLayer, ExpertTensor, Experts, Groups, LayerKind};
pub use family::{
    Family, Gate, Mask, NextN, Presence, ProfilePass, Renormalise, RoutingNode, Selection, families, family,
};
pub use id_map::{IdMap, IdMapError};
pub use identity::Identity;
pub use keep::{KeepError, KeepLimit};
pub use names::{Axis, Role, classify};
pub use pruned::{
    FileShape, Kept, KeptError, Provenance, PrunedError, PrunedShape, ShardPolicy, any_experts, check_kept,
};

#[cfg(test)]
mod fixture;
