//! The flags of cache-aware routing.

use crate::cache::PolicyKind;
use crate::replay::{CacheAware, DeltaReading};
use clap::Args;

/// How a cache takes part in the routing.
#[derive(Args, Clone, Debug)]
pub struct CacheAwareFlags {
    /// Cache-aware routing: how much being in the cache counts, in ranges of router values; 0 is the plain routing
    #[arg(long, value_name = "λ,…", value_delimiter = ',', value_parser = number)]
    pub lambda: Vec<f64>,
    /// Cache-aware routing: the router's first J count as in the cache
    #[arg(long, value_name = "J", default_value_t = 1, requires = "lambda")]
    pub top_j: u32,
    /// Cache-aware routing, the range: "ema99" or "ema95", the layer's mean of max − min so far, or "token", the token's own best − last selected
    #[arg(long, value_name = "ema99|ema95|token", default_value = "ema99", requires = "lambda")]
    pub delta: DeltaReading,
}

impl CacheAwareFlags {
    /// The settings with this `λ`.
    pub fn with(&self, lambda: f64) -> CacheAware {
        CacheAware { lambda, top: self.top_j, delta: self.delta }
    }
}

/// A number of 0 or more.
///
/// # Errors
/// When the text is something else.
pub fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number of 0 or more".to_owned())
}

/// The help of the flags that name policies.
pub fn policy_help() -> String {
    format!("What is evicted: {}", PolicyKind::names().join(", "))
}
