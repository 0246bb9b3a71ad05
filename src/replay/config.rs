//! What is to be replayed, checked against the trace.

use super::CacheAware;
use crate::cache::{Groups, PolicyKind, Space, group_slots};
use crate::trace::{RouterValues, TraceError, TraceMeta};
use crate::units::ByteCount;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// The room of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// So many experts of each layer, apart.
    Experts(u32),
    /// So many bytes for the experts of all layers together.
    Bytes(u64),
    /// So many experts of all layers together, which have one size.
    Slots(u32),
}

/// One cache to replay through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSpec {
    /// The policy.
    pub policy: PolicyKind,
    /// The room.
    pub capacity: Capacity,
    /// Cache-aware routing.
    pub cache_aware: Option<CacheAware>,
    /// Fetching ahead.
    pub prefetch: Option<PrefetchPlan>,
}

/// Where experts that are fetched ahead go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchPlace {
    /// Into a buffer of their own: nothing is evicted.
    Staging,
    /// Into the cache, to be evicted first.
    Tail,
    /// Into the cache, like one that was requested.
    Evicting,
}

/// Fetching the experts that the next layer is expected to need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchPlan {
    /// Where they go.
    pub place: PrefetchPlace,
    /// How many a layer.
    pub experts: u32,
}

/// How all caches are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Tokens after which a cache that began empty counts as steady.
    pub warmup: u64,
    /// Whether a session begins with what the one before it left in the cache.
    pub carry: bool,
    /// Whether the tokens of prefill are requested one by one, as in decode, and not a ubatch at once.
    pub one_by_one: bool,
    /// Whether the miss-ratio curve of LRU is wanted.
    pub curve: bool,
    /// Threads.
    pub threads: usize,
}

/// How long transfers take: a model, not a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferModel {
    /// Bytes a second.
    pub bandwidth: f64,
    /// Seconds that each expert costs beside its bytes.
    pub latency: f64,
}

/// Why there is nothing to replay.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Less room than a token needs in a layer.
    #[error(
        "a capacity of {capacity} experts a layer is below the {n_expert_used} that a token uses in layer {layer}"
    )]
    BelowUsed {
        /// Experts a layer.
        capacity: u32,
        /// Experts of a token.
        n_expert_used: u32,
        /// The layer.
        layer: u32,
    },
    /// Less room than a token needs in one layer.
    #[error("{} cannot hold the {n_expert_used} experts that a token uses in layer {layer}, which take {}", ByteCount(*bytes), ByteCount(*needed))]
    BytesBelowUsed {
        /// The room.
        bytes: u64,
        /// Bytes that are needed.
        needed: u64,
        /// Experts of a token.
        n_expert_used: u32,
        /// The layer.
        layer: u32,
    },
    /// A room in bytes for experts of unknown size.
    #[error("the trace does not tell the bytes of an expert, so no capacity can be given in bytes")]
    NoBytes,
    /// A question without a feasible answer.
    #[error(
        "{policy} needs experts of one size, and those of layer {layer} have another than those before it"
    )]
    Sizes {
        /// The policy.
        policy: PolicyKind,
        /// The first layer of another size.
        layer: u32,
    },
    /// The choices depend on the cache.
    #[error("{policy} knows what comes, and with cache-aware routing what comes depends on the cache")]
    OptimumAware {
        /// The policy.
        policy: PolicyKind,
    },
    /// No values to choose by.
    #[error("the trace has no router values, which cache-aware routing chooses by")]
    NoValues,
    /// A policy that takes nothing ahead.
    #[error(
        "{policy} takes no experts that are fetched ahead into the cache; lru does, and a staging buffer goes with any policy"
    )]
    NoPrefetch {
        /// The policy.
        policy: PolicyKind,
    },
    /// Too few tokens.
    #[error(
        "no request of the trace begins after a warm-up of {warmup} tokens, so nothing is steady in it: it has {tokens} tokens in its longest stretch without an emptied cache"
    )]
    TooShort {
        /// Tokens.
        tokens: u64,
        /// Tokens of the warm-up.
        warmup: u64,
    },
    /// Nothing to choose by.
    #[error("static chooses its experts during the warm-up, and there is none")]
    NoWarmup,
    /// No token at all.
    #[error("the trace has no tokens")]
    Empty,
    /// A ubatch that no machine computes.
    #[error("ubatch {ubatch} of the trace has more than {limit} tokens")]
    LargeUbatch {
        /// Its number.
        ubatch: u64,
        /// Tokens that are possible.
        limit: usize,
    },
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Experts(n) => write!(f, "{n}/layer"),
            Capacity::Bytes(bytes) => write!(f, "{}", ByteCount(*bytes)),
            Capacity::Slots(n) => write!(f, "{n} slots"),
        }
    }
}

/// A cache for some of the layers.
pub(super) struct Pool {
    /// Positions of its layers among those of the trace.
    pub(super) layers: std::ops::Range<usize>,
    pub(super) space: Space,
}

impl RunSpec {
    /// Checks that the run goes with the trace.
    ///
    /// # Errors
    /// When it does not.
    pub fn check(&self, meta: &TraceMeta) -> Result<(), ReplayError> {
        self.pools(meta).map(drop)
    }

    /// Checks the run against the trace, and lays out its caches.
    pub(super) fn pools(&self, meta: &TraceMeta) -> Result<Vec<Pool>, ReplayError> {
        self.check_policy(meta)?;
        match self.capacity {
            Capacity::Experts(capacity) => {
                for layer in &meta.layers {
                    let n_expert_used = layer.n_expert_used;
                    if capacity < n_expert_used {
                        return Err(ReplayError::BelowUsed { capacity, n_expert_used, layer: layer.layer });
                    }
                }
                let pool = |(at, n_expert): (usize, u32)| {
                    let space = Space::slots(n_expert as usize, capacity.min(n_expert), 1);
                    Pool { layers: at..at + 1, space }
                };
                Ok(meta.layers.iter().map(|layer| layer.n_expert).enumerate().map(pool).collect())
            }
            Capacity::Slots(slots) => {
                let n = meta.layers.iter().map(|layer| layer.n_expert as usize).sum();
                self.check_sizes(meta)?;
                let used = meta.layers.iter().max_by_key(|layer| layer.n_expert_used);
                if let Some(layer) = used.filter(|layer| layer.n_expert_used > slots) {
                    let (n_expert_used, layer) = (layer.n_expert_used, layer.layer);
                    return Err(ReplayError::BelowUsed { capacity: slots, n_expert_used, layer });
                }
                let space = Space::slots(n, slots, meta.layers.len() as u32);
                Ok(vec![Pool { layers: 0..meta.layers.len(), space }])
            }
            Capacity::Bytes(bytes) => self.pool_of_bytes(meta, bytes).map(|pool| vec![pool]),
        }
    }

    fn check_policy(&self, meta: &TraceMeta) -> Result<(), ReplayError> {
        let policy = self.policy;
        if self.cache_aware.is_some_and(|aware| aware.lambda > 0.0) {
            if policy.is_optimum() {
                return Err(ReplayError::OptimumAware { policy });
            }
            if meta.router_values == RouterValues::None {
                return Err(ReplayError::NoValues);
            }
        }
        let into_cache = self.prefetch.is_some_and(|plan| plan.place != PrefetchPlace::Staging);
        if into_cache && policy != PolicyKind::Lru || self.prefetch.is_some() && policy.is_optimum() {
            return Err(ReplayError::NoPrefetch { policy });
        }
        Ok(())
    }

    fn check_sizes(&self, meta: &TraceMeta) -> Result<(), ReplayError> {
        let size = meta.layers.first().map(|layer| layer.bytes_per_expert());
        match meta.layers.iter().find(|layer| Some(layer.bytes_per_expert()) != size) {
            Some(layer) => Err(ReplayError::Sizes { policy: self.policy, layer: layer.layer }),
            None => Ok(()),
        }
    }

    fn pool_of_bytes(&self, meta: &TraceMeta, bytes: u64) -> Result<Pool, ReplayError> {
        if !meta.has_bytes() {
            return Err(ReplayError::NoBytes);
        }
        for layer in &meta.layers {
            let needed = layer.bytes_per_expert() * u64::from(layer.n_expert_used);
            if needed > bytes {
                let (n_expert_used, layer) = (layer.n_expert_used, layer.layer);
                return Err(ReplayError::BytesBelowUsed { bytes, needed, n_expert_used, layer });
            }
        }
        if self.policy.is_optimum() {
            self.check_sizes(meta)?;
        }
        let size = meta.layers[0].bytes_per_expert();
        let uniform = meta.layers.iter().all(|layer| layer.bytes_per_expert() == size).then_some(size);
        let sizes = meta
            .layers
            .iter()
            .flat_map(|layer| std::iter::repeat_n(layer.bytes_per_expert(), layer.n_expert as usize));
        let space = Space {
            sizes: sizes.collect(),
            capacity: bytes,
            uniform,
            requests_per_token: meta.layers.len() as u32,
            groups: Arc::new(groups(meta, bytes)),
        };
        Ok(Pool { layers: 0..meta.layers.len(), space })
    }
}

/// The layers by the shape of their tensors, which share the budget by what their experts take in all.
fn groups(meta: &TraceMeta, budget: u64) -> Groups {
    let mut shapes = BTreeMap::<&[u64], (u16, u64)>::new();
    for layer in &meta.layers {
        let next = shapes.len() as u16;
        let shape = shapes.entry(layer.slabs.as_slice()).or_insert((next, 0));
        shape.1 += u64::from(layer.n_expert);
    }
    let bytes = |slabs: &[u64], n: u64| slabs.iter().sum::<u64>() as f64 * n as f64;
    let all: f64 = shapes.iter().map(|(slabs, (_, n))| bytes(slabs, *n)).sum();
    let mut slots = vec![0; shapes.len()];
    for (slabs, (group, n)) in &shapes {
        let share = (budget as f64 * (bytes(slabs, *n) / all.max(1.0))) as u64;
        slots[usize::from(*group)] = group_slots(slabs, share, *n);
    }
    let of_layer = |slabs: &Vec<u64>| shapes.get(slabs.as_slice()).map_or(0, |(group, _)| *group);
    let of_key = meta
        .layers
        .iter()
        .flat_map(|layer| std::iter::repeat_n(of_layer(&layer.slabs), layer.n_expert as usize))
        .collect();
    Groups { of_key, slots }
}

impl ReplayOptions {
    /// Empties the cache between sessions, and counts the first 128 tokens after as warm-up.
    pub fn new(threads: usize) -> ReplayOptions {
        ReplayOptions { warmup: 128, carry: false, one_by_one: false, curve: false, threads }
    }
}

impl RunSpec {
    /// A policy in a room, routing as the router says.
    pub fn plain(policy: PolicyKind, capacity: Capacity) -> RunSpec {
        RunSpec { policy, capacity, cache_aware: None, prefetch: None }
    }

    /// Bytes that the cache may hold.
    pub fn bytes(&self, meta: &TraceMeta) -> u64 {
        match self.capacity {
            Capacity::Bytes(bytes) => bytes,
            Capacity::Experts(n) => meta
                .layers
                .iter()
                .map(|layer| layer.bytes_per_expert() * u64::from(n.min(layer.n_expert)))
                .sum(),
            Capacity::Slots(n) => {
                let largest = meta.layers.iter().map(|layer| layer.bytes_per_expert()).max().unwrap_or(0);
                largest * u64::from(n)
            }
        }
    }
}
