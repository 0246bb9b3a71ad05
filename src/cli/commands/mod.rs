//! One file a command: its arguments, and what it does.

#[cfg(feature = "llama")]
pub mod bench;
pub mod completions;
#[cfg(feature = "llama")]
pub mod devices;
#[cfg(feature = "llama")]
pub mod dry_run;
#[cfg(feature = "llama")]
pub mod eval;
pub mod imatrix;
pub mod inspect;
pub mod man;
pub mod merge;
pub mod plan;
#[cfg(feature = "llama")]
pub mod profile;
pub mod prune;
#[cfg(feature = "llama")]
pub mod refine;
pub mod replay;
pub mod report;
#[cfg(feature = "llama")]
pub mod run;
#[cfg(feature = "llama")]
pub mod trace;
pub mod verify;
#[cfg(feature = "llama")]
mod within;
