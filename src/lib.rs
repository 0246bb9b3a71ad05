//! moeslice: see which experts of a Mixture-of-Experts model a corpus activates, and cut the others out of its GGUF.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod arch;
#[cfg(feature = "cli")]
pub mod cli;
pub mod corpus;
pub mod evaluate;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gguf;
mod json;
#[cfg(feature = "llama")]
pub mod llama;
pub mod moe;
pub mod plan;
pub mod profile;
pub mod progress;
pub mod report;
#[cfg(test)]
mod schemas;
pub mod score;
pub mod slice;
#[cfg(feature = "llama")]
pub mod supervise;
pub mod sys;
pub mod units;
pub mod usage;
#[cfg(feature = "llama")]
pub mod windows;
