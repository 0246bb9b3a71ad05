//! Flags that several commands share.

#[cfg(feature = "llama")]
pub mod hf;
#[cfg(feature = "llama")]
pub mod llama;
#[cfg(feature = "llama")]
mod llama_values;
pub mod mtp;
pub mod names;
pub mod output;
pub mod selection;
#[cfg(feature = "llama")]
pub mod texts;
