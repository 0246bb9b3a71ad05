//! moeslice: see which experts of a Mixture-of-Experts model a corpus wakes up, and cut the others out of its GGUF.
//!
//! The modules stand in the order in which data flows: a corpus is profiled ([`profile`]) into a usage file, experts
//! are ranked ([`score`]), the kept ones are chosen ([`plan`]), the file is cut ([`mod@slice`]) and its cost told
//! ([`evaluate`]). No module knows of those after it. [`gguf`] and [`moe`] read model files; `llama` runs them and is the only one that needs llama.cpp;
//! [`sys`] writes files whole or not at all.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod cli;
pub mod evaluate;
pub mod gguf;
mod json;
#[cfg(feature = "llama")]
pub mod llama;
pub mod moe;
pub mod plan;
pub mod profile;
pub mod report;
#[cfg(test)]
mod schemas;
pub mod score;
pub mod slice;
pub mod sys;
mod unique_map;
