//! What fuzzing and property tests do with arbitrary bytes.

use crate::cache::PolicyKind;
use crate::progress::Interrupt;
use crate::replay::{Capacity, ReplayError, ReplayOptions, RunSpec, replay};
use crate::trace::{Batch, TraceError, TraceReader, TraceWriter, open};
use std::path::Path;

/// Tokens beyond these teach nothing new.
const MAX_TOKENS: usize = 4096;

/// Takes `bytes` for a trace, of any form. What is read is written as an Arrow stream and read back the same, and replayed:
/// what is requested is hit or missed, and no policy misses less than the optimum. Gives the tokens.
///
/// # Errors
/// When they are no trace, or one that ends in damage.
///
/// # Panics
/// When an accepted trace breaks a promise: that is what the callers look for.
pub fn trace(bytes: &[u8]) -> Result<usize, TraceError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (given, written) = (folder.path().join("given"), folder.path().join("written.arrow"));
    std::fs::write(&given, bytes).expect("a temporary file");
    let (reader, tokens) = read(&given)?;
    let meta = reader.meta().clone();
    if tokens.rows.len() > MAX_TOKENS {
        return Ok(tokens.rows.len());
    }
    let mut writer = TraceWriter::create(&written, true, meta.clone()).expect("a header that was accepted");
    writer.append(&mut tokens.clone()).expect("tokens that were accepted");
    writer.finish().expect("the trace is whole");
    let (again, same) = read(&written).expect("what was written is accepted");
    assert_eq!(again.meta().layers, meta.layers);
    // Compared as bits: a value may be no number.
    assert_eq!(format!("{same:?}"), format!("{tokens:?}"), "and says the same");
    if !tokens.rows.is_empty() {
        replayed(&written, meta.layers.iter().map(|layer| layer.n_expert_used).max().unwrap_or(1));
    }
    Ok(tokens.rows.len())
}

/// All tokens of a trace.
fn read(path: &Path) -> Result<(Box<dyn TraceReader>, Batch), TraceError> {
    let mut reader = open(path)?;
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while reader.read(&mut batch)? {
        let width = reader.meta().layers.len() * reader.meta().candidates as usize;
        assert_eq!(batch.ids.len(), batch.rows.len() * width, "all candidates of all tokens");
        all.append(&mut batch);
        if all.rows.len() > MAX_TOKENS {
            break;
        }
    }
    Ok((Box::new(reader), all))
}

fn replayed(path: &Path, capacity: u32) {
    let policies = [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::Belady];
    let specs = policies.map(|policy| RunSpec::plain(policy, Capacity::Experts(capacity)));
    let options = ReplayOptions { warmup: 0, curve: true, ..ReplayOptions::new(1) };
    let mut trace = open(path).expect("it was read before");
    let done = match replay(&mut trace, &specs, options, None, Interrupt::NEVER, &mut |_| {}) {
        Ok(done) => done.expect("nobody interrupts"),
        Err(ReplayError::LargeUbatch { .. }) => return,
        Err(error) => panic!("a trace that was accepted cannot be replayed: {error}"),
    };
    let counts: Vec<_> = done.rows.iter().map(|row| row.all.counts).collect();
    for one in &counts {
        assert_eq!(one.requests, one.hits + one.misses);
        assert!(counts[2].misses <= one.misses, "no policy misses less than the optimum: {counts:?}");
    }
}
