//! What a cut costs, before anything is written and after.

#[cfg(feature = "llama")]
mod mask;

#[cfg(feature = "llama")]
pub use mask::{ExpertMask, MaskError};
