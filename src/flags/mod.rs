//! Flags that several commands share.

pub mod cache_aware;
#[cfg(feature = "llama")]
pub mod cache_loop;
pub mod card;
#[cfg(feature = "llama")]
mod downloads;
#[cfg(feature = "llama")]
pub mod eval_texts;
#[cfg(feature = "llama")]
pub mod hf;
#[cfg(feature = "llama")]
pub mod keep;
#[cfg(feature = "llama")]
pub mod llama;
#[cfg(feature = "llama")]
mod llama_values;
#[cfg(feature = "llama")]
pub mod loading;
pub mod mtp;
pub mod names;
pub mod output;
pub mod page;
#[cfg(feature = "llama")]
pub mod preflight;
#[cfg(feature = "llama")]
pub mod rpc;
pub mod selection;
#[cfg(feature = "llama")]
pub mod texts;
