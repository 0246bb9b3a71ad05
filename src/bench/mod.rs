//! How fast models process a prompt and generate, side by side.
//!
//! As `llama-bench` measures it: random tokens, a prompt in batches, a generation token by token, after a warm-up that is
//! not counted; no observer watches, so the graph runs as it does in use. The models take turns (A B A B …), so that a
//! machine that grows warm, or busy, does not favour one of them.

mod format;
mod markdown;
mod row;
mod run;
mod statistics;

pub use format::{COLUMNS, Format, FormatError, rows};
pub use run::{BenchError, BenchOptions, Measured, ModelBench, Subject, Test, bench, bench_contexts};
pub use statistics::Speed;
