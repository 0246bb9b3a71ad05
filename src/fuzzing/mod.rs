//! What fuzz targets and property tests do with arbitrary bytes, one file a target.

pub mod gguf;
pub mod plan;
pub mod prune;
pub mod report;
pub mod trace;
pub mod usage;
pub mod verify;
