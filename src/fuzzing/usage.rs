//! What fuzzing and property tests do with arbitrary bytes.

use std::path::Path;

use crate::usage::{Usage, UsageError, merge};

/// Parses `bytes` as a usage file and, if that succeeds, checks what must then hold: it is written and read back the
/// same, and merged with a usage of other texts it is one that can be read again.
///
/// # Panics
/// When an accepted usage breaks a promise: that is what the callers look for.
pub fn usage(bytes: &[u8]) -> Result<Usage, UsageError> {
    let path = Path::new("input.json");
    let usage = Usage::parse(bytes, path)?;
    let text = usage.to_json();
    let again = Usage::parse(text.as_bytes(), path).expect("what was written is accepted");
    assert_eq!(again, usage, "and says the same");
    assert_eq!(again.to_json(), text);

    let mut other = usage.clone();
    for corpus in &mut other.corpora {
        corpus.files.clear();
    }
    let pair = [("a.json".into(), usage.clone()), ("b.json".into(), other)];
    // Counts may overflow, which is an error.
    if let Ok(merged) = merge(&pair) {
        let text = merged.usage.to_json();
        let again = Usage::parse(text.as_bytes(), path).expect("a merged usage is accepted");
        assert_eq!(again, merged.usage);
    }
    Ok(usage)
}
