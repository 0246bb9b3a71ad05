//! What is counted while a cache is replayed.

use crate::trace::Phase;
use serde::{Deserialize, Serialize};

/// Turns that are counted apart; later ones count for the last.
const MAX_TURNS: usize = 64;

/// Accesses of a part of a trace. Each expert of each request is one access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Tokens.
    pub tokens: u64,
    /// Experts that were needed.
    pub requests: u64,
    /// Those that were in the cache.
    pub hits: u64,
    /// Those that had been fetched ahead into a buffer beside the cache.
    pub staged: u64,
    /// Those that had to be fetched.
    pub misses: u64,
    /// Bytes of the misses.
    pub bytes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.tokens += other.tokens;
        self.requests += other.requests;
        self.hits += other.hits;
        self.staged += other.staged;
        self.misses += other.misses;
        // The size of an expert is what the trace says, so the sum may be of any size.
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Adds what another layer counted for the same tokens.
    pub fn add_layer(&mut self, other: &Counts) {
        let tokens = self.tokens;
        self.add(other);
        self.tokens = tokens;
    }

    /// Share of the requests that were hits; 0 without requests.
    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    /// Misses a token.
    pub fn misses_per_token(&self) -> f64 {
        self.misses as f64 / self.tokens.max(1) as f64
    }

    /// Bytes a token.
    pub fn bytes_per_token(&self) -> f64 {
        self.bytes as f64 / self.tokens.max(1) as f64
    }
}

/// What fetching ahead did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchCounts {
    /// Experts that were fetched ahead.
    pub fetched: u64,
    /// Those that the layer then needed.
    pub useful: u64,
    /// Bytes of those.
    pub useful_bytes: u64,
    /// Bytes of the others.
    pub wasted_bytes: u64,
}

/// All counts of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) all: Counts,
    pub(super) prefill: Counts,
    pub(super) decode: Counts,
    pub(super) turns: Vec<Counts>,
    pub(super) steady: Counts,
    /// Misses of experts that the cache had never seen since it was empty.
    pub(super) cold_misses: u64,
    /// The other misses of the warm-up.
    pub(super) warm_misses: u64,
    /// The other misses after it.
    pub(super) steady_misses: u64,
    pub(super) prefetch: PrefetchCounts,
    /// The longest run of tokens from an empty cache.
    pub(super) longest: u64,
}

/// Where the counts of a request go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) phase: Phase,
    pub(super) turn: u32,
    pub(super) steady: bool,
}

impl Tally {
    pub(super) fn add(&mut self, counts: &Counts, place: Place) {
        self.all.add(counts);
        match place.phase {
            Phase::Prefill => self.prefill.add(counts),
            Phase::Decode => self.decode.add(counts),
        }
        let turn = (place.turn as usize).min(MAX_TURNS - 1);
        if self.turns.len() <= turn {
            self.turns.resize(turn + 1, Counts::default());
        }
        self.turns[turn].add(counts);
        if place.steady {
            self.steady.add(counts);
        }
    }
}
