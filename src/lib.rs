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
pub mod replay;
pub mod report;
pub mod score;
pub mod slice;
pub mod sys;
pub mod trace;
pub mod units;
pub mod usage;
#[cfg(feature = "llama")]
pub mod windows;
