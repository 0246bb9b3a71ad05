//! What a replay says, for tables, JSON and pages.

use super::counts::{Counts, PrefetchCounts, Tally};
use super::{Capacity, CurveResult, DeltaReading, PrefetchPlace, RunSpec, TransferModel};
use crate::trace::TraceMeta;
use serde::Serialize;

/// A replay of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replay {
    /// Tokens of the trace.
    pub tokens: u64,
    /// Tokens of the warm-up.
    pub warmup: u64,
    /// Whether sessions began with what was in the cache.
    pub carry: bool,
    /// Whether the tokens of prefill were requested one by one.
    pub one_by_one: bool,
    /// Layers.
    pub n_layer: usize,
    /// Bytes of all experts that one token goes to; 0 when unknown.
    pub working_set_bytes: u64,
    /// Each cache.
    pub rows: Vec<RunResult>,
    /// The miss-ratio curve of LRU, with so many experts of each layer in a cache of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<CurveResult>,
    /// What is to be said of the trace.
    pub remarks: Vec<String>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunResult {
    /// The policy.
    pub policy: &'static str,
    /// Experts of each layer, where room was given so.
    pub capacity: Option<u32>,
    /// Bytes of the cache; 0 when unknown.
    pub capacity_bytes: u64,
    /// Cache-aware routing.
    pub cache_aware: Option<CacheAwareResult>,
    /// Fetching ahead.
    pub prefetch: Option<PrefetchResult>,
    /// All of the trace.
    #[serde(flatten)]
    pub all: PartResult,
    /// First requests of an expert since the cache was empty.
    pub cold_misses: u64,
    /// Other misses of the warm-up.
    pub warm_misses: u64,
    /// Other misses after it.
    pub steady_misses: u64,
    /// After the warm-up.
    pub steady: PartResult,
    /// Tokens that were read.
    pub prefill: PartResult,
    /// Tokens that were written.
    pub decode: PartResult,
    /// By turn of the conversation.
    pub turns: Vec<PartResult>,
}

/// Cache-aware routing of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheAwareResult {
    /// How much being in the cache counted.
    pub lambda: f64,
    /// Ranks that counted as in the cache.
    pub top: u32,
    /// What the range was.
    pub delta: &'static str,
    /// The hidden states are those of the plain routing: the model did not see its other experts.
    pub open_loop: bool,
}

/// Fetching ahead in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrefetchResult {
    /// Where they went.
    pub place: &'static str,
    /// How many a layer, at most.
    pub experts: u32,
    /// What came of it.
    #[serde(flatten)]
    pub counts: PrefetchCounts,
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PartResult {
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Hits a request.
    pub hit_rate: f64,
    /// Misses a token.
    pub misses_per_token: f64,
    /// Bytes a token.
    pub bytes_per_token: f64,
    /// Tokens a second that the transfers of the misses alone allow, by the model that was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
}

impl Replay {
    /// Whether tokens were requested one by one, for which alone experts are fetched ahead.
    pub fn has_single_tokens(&self) -> bool {
        self.one_by_one || self.rows.iter().any(|row| row.decode.counts.tokens > 0)
    }
}

impl PartResult {
    pub(super) fn new(counts: Counts, model: Option<TransferModel>) -> PartResult {
        let seconds = |model: TransferModel| {
            counts.bytes_per_token() / model.bandwidth + counts.misses_per_token() * model.latency
        };
        PartResult {
            counts,
            hit_rate: counts.hit_rate(),
            misses_per_token: counts.misses_per_token(),
            bytes_per_token: counts.bytes_per_token(),
            tokens_per_second: model.map(seconds).filter(|seconds| *seconds > 0.0).map(f64::recip),
        }
    }
}

impl PrefetchPlace {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            PrefetchPlace::Staging => "staging",
            PrefetchPlace::Tail => "tail",
            PrefetchPlace::Evicting => "evicting",
        }
    }
}

impl RunResult {
    pub(super) fn new(
        spec: &RunSpec,
        meta: &TraceMeta,
        tally: &Tally,
        model: Option<TransferModel>,
    ) -> RunResult {
        let part = |counts: &Counts| PartResult::new(*counts, model);
        let aware = spec.cache_aware.map(|aware| CacheAwareResult {
            lambda: aware.lambda,
            top: aware.top,
            delta: DeltaReading::name(aware.delta),
            open_loop: true,
        });
        let prefetch = spec.prefetch.map(|plan| PrefetchResult {
            place: plan.place.name(),
            experts: plan.experts,
            counts: tally.prefetch,
        });
        RunResult {
            policy: spec.policy.name(),
            capacity: match spec.capacity {
                Capacity::Experts(capacity) => Some(capacity),
                Capacity::Bytes(_) | Capacity::Slots(_) => None,
            },
            capacity_bytes: spec.bytes(meta),
            cache_aware: aware,
            prefetch,
            all: part(&tally.all),
            cold_misses: tally.cold_misses,
            warm_misses: tally.warm_misses,
            steady_misses: tally.steady_misses,
            steady: part(&tally.steady),
            prefill: part(&tally.prefill),
            decode: part(&tally.decode),
            turns: tally.turns.iter().map(part).collect(),
        }
    }
}
