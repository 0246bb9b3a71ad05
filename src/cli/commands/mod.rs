//! One file a command: its arguments, and what it does.

pub mod completions;
#[cfg(feature = "llama")]
pub mod devices;
pub mod inspect;
pub mod man;
pub mod merge;
pub mod plan;
#[cfg(feature = "llama")]
pub mod profile;
pub mod prune;
pub mod report;
#[cfg(feature = "llama")]
pub mod run;
pub mod verify;
