//! Whether models and their contexts fit into memory, found out before any of it is taken.
//!
//! llama.cpp plans a model and its contexts without allocating them ([`Placement::planned`](crate::llama::Placement::planned)).
//! What it would take of each device is a [`Demand`]; [`Demand::check`] holds it against what is free. The processor's
//! memory counts like any other: llama.cpp's own fitting takes it for unlimited.

mod demand;
mod verdict;

pub use demand::{Demand, Share, Wanted};
pub use verdict::{DoesNotFit, Figure, Lack};

/// The stage in which memory is planned.
pub const PLANNING: &str = "planning memory";
