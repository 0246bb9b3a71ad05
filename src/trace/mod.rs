//! Recorded routing: which experts each token went to, and which ones came close.
//!
//! A trace is an Apache Arrow IPC stream with one row a token ([`TraceWriter`]), so that it can be read while it grows and
//! up to its last batch after a kill. Traces of other programs come as JSONL or CSV, one line a token and layer.
//! [`open()`] reads all three, in batches of bounded size.

mod arrow_reader;
mod batch;
mod csv;
mod error;
mod jsonl;
mod meta;
mod open;
mod tokens;
mod writer;

pub use batch::{Batch, NO_EXPERT, Phase, Row};
pub use error::TraceError;
pub use meta::{RouterValues, TRACE_SCHEMA, TraceLayer, TraceMeta, TraceRun, TracedCorpus, TracedModel};
pub use open::{OpenTrace, TraceReader, open};
pub use writer::TraceWriter;

#[cfg(test)]
pub(crate) mod test_trace;
#[cfg(test)]
mod tests;
