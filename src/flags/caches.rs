//! The flags of the caches that a trace is replayed through.

use super::cache_aware::{CacheAwareFlags, policy_help};
use crate::cache::PolicyKind;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::replay::{CacheAware, Capacity, PrefetchPlace, PrefetchPlan, ReplayError, RunSpec};
use crate::trace::TraceMeta;
use crate::units::parse_bytes;
use clap::Args;

/// Caches: each policy in each room.
#[derive(Args, Clone, Debug)]
pub struct CachesFlags {
    /// Caches of so many experts of each layer
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub capacity: Vec<u32>,
    /// Caches of so many bytes for all layers together, such as 8GiB
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    pub memory: Vec<u64>,
    /// What is evicted
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "lru,slru,lfu,static,belady", help = policy_help())]
    pub policy: Vec<PolicyKind>,
    /// Tokens after which a cache that began empty counts as steady
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub warmup: u64,
    /// Fetch N experts ahead for the next layer: "staging:N" into a buffer of their own, "tail:N" to where lru evicts first, "evicting:N" into lru like others
    #[arg(long, value_name = "PLACE:N", value_parser = prefetch)]
    pub prefetch: Option<PrefetchPlan>,
    #[command(flatten)]
    pub aware: CacheAwareFlags,
}

/// A number of bytes.
///
/// # Errors
/// When the text is none.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(str::to_owned)
}

fn prefetch(text: &str) -> Result<PrefetchPlan, String> {
    let wrong = || "expected staging:N, tail:N or evicting:N".to_owned();
    let (place, experts) = text.split_once(':').ok_or_else(wrong)?;
    let place = [PrefetchPlace::Staging, PrefetchPlace::Tail, PrefetchPlace::Evicting]
        .into_iter()
        .find(|known| known.name() == place)
        .ok_or_else(wrong)?;
    let experts = experts.parse().ok().filter(|experts| (1..=1024).contains(experts)).ok_or_else(wrong)?;
    Ok(PrefetchPlan { place, experts })
}

impl CachesFlags {
    /// All caches that the flags ask for, checked against the trace. Without a room there are none, which is an answer where
    /// the `curve` of lru is wanted.
    ///
    /// # Errors
    /// When a cache does not go with the trace, or with other flags.
    pub fn specs(&self, meta: &TraceMeta, curve: bool, console: Console) -> Result<Vec<RunSpec>, Failure> {
        let specs = self.without_unequal(self.all(curve)?, meta, console);
        let specs = self.without_unlearnt(specs, console)?;
        specs.iter().try_for_each(|spec| spec.check(meta)).map_err(replay_failure)?;
        Ok(specs)
    }

    fn all(&self, curve: bool) -> Result<Vec<RunSpec>, Failure> {
        let capacities: Vec<Capacity> = (self.capacity.iter().map(|n| Capacity::Experts(*n)))
            .chain(self.memory.iter().map(|bytes| Capacity::Bytes(*bytes)))
            .collect();
        if capacities.is_empty() && !curve {
            return Err(Failure::arguments(
                "how large the cache is has to be said: --capacity N for experts of each layer, --memory SIZE for all together, or --curve for every capacity of lru",
            ));
        }
        if capacities.is_empty() && (self.prefetch.is_some() || !self.aware.lambda.is_empty()) {
            return Err(Failure::arguments(
                "--curve alone is the plain lru: --prefetch and --lambda need a cache, which --capacity or --memory gives",
            ));
        }
        let aware: Vec<Option<CacheAware>> = match self.aware.lambda.as_slice() {
            [] => vec![None],
            lambdas => lambdas.iter().map(|lambda| Some(self.aware.with(*lambda))).collect(),
        };
        let mut specs = Vec::new();
        for capacity in capacities {
            for policy in &self.policy {
                for cache_aware in &aware {
                    // What comes depends on the cache then, which an optimum cannot know; it stands beside the others at 0.
                    let unknown = policy.is_optimum() && cache_aware.is_some_and(|aware| aware.lambda > 0.0);
                    if unknown && self.policy.len() > 1 && self.aware.lambda.contains(&0.0) {
                        continue;
                    }
                    let prefetch = self.prefetch.filter(|_| !(policy.is_optimum() && self.policy.len() > 1));
                    specs.push(RunSpec { policy: *policy, capacity, cache_aware: *cache_aware, prefetch });
                }
            }
        }
        Ok(specs)
    }

    /// Leaves an optimum out where it cannot be told, unless it is all that was asked for.
    fn without_unequal(&self, mut specs: Vec<RunSpec>, meta: &TraceMeta, console: Console) -> Vec<RunSpec> {
        let mut sizes = meta.layers.iter().map(|layer| layer.bytes_per_expert());
        let first = sizes.next();
        if self.policy.iter().all(|policy| policy.is_optimum()) || sizes.all(|size| Some(size) == first) {
            return specs;
        }
        let before = specs.len();
        specs.retain(|spec| !(spec.policy.is_optimum() && matches!(spec.capacity, Capacity::Bytes(_))));
        if specs.len() < before {
            console.remark("experts differ in size between the layers: the optimum of --memory cannot be told, and is left out");
        }
        specs
    }

    /// Leaves the policy that learns from the warm-up out where there is none, unless it is all that was asked for.
    fn without_unlearnt(&self, mut specs: Vec<RunSpec>, console: Console) -> Result<Vec<RunSpec>, Failure> {
        let learns = |spec: &RunSpec| spec.policy == PolicyKind::Static;
        if self.warmup == 0 && specs.iter().any(learns) {
            if specs.iter().all(learns) {
                return Err(replay_failure(ReplayError::NoWarmup));
            }
            console.remark(&format!("{}: it is left out", ReplayError::NoWarmup));
            specs.retain(|spec| !learns(spec));
        }
        Ok(specs)
    }
}

/// Numbers that do not go with the trace are a matter of the arguments, all else of the trace.
pub fn replay_failure(error: ReplayError) -> Failure {
    match error {
        error @ (ReplayError::Trace(_)
        | ReplayError::NoBytes
        | ReplayError::NoValues
        | ReplayError::Empty
        | ReplayError::TooShort { .. }
        | ReplayError::LargeUbatch { .. }) => Failure::input(error),
        error => Failure::Arguments(error.into()),
    }
}
