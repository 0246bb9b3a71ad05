//! Flags that several commands share.

pub mod card;
#[cfg(feature = "llama")]
pub mod eval_texts;
#[cfg(feature = "llama")]
pub mod keep;
#[cfg(feature = "llama")]
pub mod llama;
pub mod mtp;
pub mod output;
pub mod page;
pub mod selection;
#[cfg(feature = "llama")]
pub mod texts;
