//! The flags of a cache that takes part in the routing.

use super::cache_aware::{CacheAwareFlags, policy_help};
use crate::cache::PolicyKind;
use crate::evaluate::{CacheCounts, CacheRouting, LoopCounts};
use crate::replay::{CacheAware, Capacity, ReplayOptions, RunSpec};
use clap::Args;

/// The values of `--lambda` when none is given.
const LAMBDAS: [f64; 4] = [0.0, 0.1, 0.3, 0.5];

/// A cache that takes part in the routing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "A cache in the routing")]
pub struct LoopFlags {
    /// Let a simulated cache of experts take part in the routing: what that costs, and how many experts it spares to fetch
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', requires = "capacity", long_help = loop_help(),
          conflicts_with_all = ["base", "usage", "plan", "noise", "report"])]
    pub cache_policy: Vec<PolicyKind>,
    /// Experts of each layer that the cache holds
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "cache_policy", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub capacity: Vec<u32>,
    /// Begin each window with what the one before it left in the cache
    #[arg(long, requires = "cache_policy")]
    pub carry: bool,
    /// Tokens after which a cache that began empty counts as steady
    #[arg(long, value_name = "TOKENS", default_value_t = 128, requires = "cache_policy")]
    pub warmup: u64,
    #[command(flatten)]
    pub aware: CacheAwareFlags,
}

fn loop_help() -> String {
    format!(
        "Let a simulated cache of experts take part in the routing: what that costs, and how many experts it spares to fetch. {}",
        policy_help()
    )
}

impl LoopFlags {
    /// Whether a cache takes part.
    pub fn is_given(&self) -> bool {
        !self.cache_policy.is_empty()
    }

    /// Each cache with each `λ`.
    pub fn specs(&self) -> Vec<RunSpec> {
        let lambdas = if self.aware.lambda.is_empty() { &LAMBDAS } else { self.aware.lambda.as_slice() };
        let mut specs = Vec::new();
        for &policy in &self.cache_policy {
            for &capacity in &self.capacity {
                let spec = RunSpec::plain(policy, Capacity::Experts(capacity));
                let with = |&lambda: &f64| RunSpec { cache_aware: Some(self.aware.with(lambda)), ..spec };
                // What comes depends on the cache then, which an optimum cannot know; it stands beside the others at 0.
                let alone = self.cache_policy.len() == 1 || !lambdas.contains(&0.0);
                specs.extend(
                    lambdas
                        .iter()
                        .filter(|&&lambda| lambda == 0.0 || alone || !policy.is_optimum())
                        .map(with),
                );
            }
        }
        specs
    }

    /// How the caches are replayed.
    pub fn options(&self) -> ReplayOptions {
        ReplayOptions { warmup: self.warmup, carry: self.carry, one_by_one: true, ..ReplayOptions::new(1) }
    }

    /// The row of a cache.
    pub fn routing(&self, spec: &RunSpec, closed: &LoopCounts, open: &LoopCounts) -> CacheRouting {
        let aware = spec.cache_aware.unwrap_or(CacheAware { lambda: 0.0, ..self.aware.with(0.0) });
        let capacity = match spec.capacity {
            Capacity::Experts(n) | Capacity::Slots(n) => n,
            Capacity::Bytes(_) => 0, // never asked for here
        };
        CacheRouting {
            policy: spec.policy.to_string(),
            capacity,
            lambda: aware.lambda,
            top: aware.top,
            delta: aware.delta.to_string(),
            carry: self.carry,
            closed: counts(closed),
            open: counts(open),
        }
    }
}

fn counts(counts: &LoopCounts) -> CacheCounts {
    CacheCounts {
        tokens: counts.all.tokens,
        requests: counts.all.requests,
        misses: counts.all.misses,
        bytes: counts.all.bytes,
        steady_requests: counts.steady.requests,
        steady_misses: counts.steady.misses,
    }
}
