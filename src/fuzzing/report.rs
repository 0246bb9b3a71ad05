//! What fuzzing and property tests do with arbitrary bytes.

use super::{plan, usage};
use crate::report::UsageReport;
use crate::usage::{Usage, UsageError};

/// Takes `bytes` for a usage file through all that can be done with one: reading, writing, merging, planning, and the
/// report.
///
/// # Panics
/// When an accepted usage breaks a promise: that is what the callers look for.
pub fn usage(bytes: &[u8]) -> Result<Usage, UsageError> {
    let usage = usage::usage(bytes)?;
    // Longer lists teach nothing new.
    if usage.layers.iter().all(|layer| layer.total.count.len() <= 64) {
        plan::every_cut(&usage);
    }
    let report = UsageReport::new(&usage);
    let routed = usage.layers.iter().any(|layer| layer.total.n_tokens > 0);
    assert_eq!(report.is_some(), routed, "there is a report when a token was routed");
    if let Some(report) = report {
        #[cfg(feature = "cli")]
        assert!(!report.to_string().is_empty());
        let json = serde_json::to_value(&report).expect("a report is JSON");
        assert!(json["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{json}");
    }
    Ok(usage)
}
