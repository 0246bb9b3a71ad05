//! One cache, replayed.

use super::choose::{Chooser, TokenCandidates};
use super::counts::{Counts, Place, Tally};
use super::prefetch::Predictor;
use super::result::RunResult;
use super::steps::{Chunk, Group};
use super::{PrefetchPlace, ReplayError, ReplayOptions, RunSpec, TransferModel};
use crate::cache::{Ahead, Candidates, Policy, Request};
use crate::trace::{Phase, TraceMeta};
use std::sync::Arc;

/// A cache, or one for each layer, and what was counted so far.
pub struct Simulation {
    spec: RunSpec,
    options: ReplayOptions,
    meta: Arc<TraceMeta>,
    pools: Vec<Box<dyn Policy>>,
    layers: Vec<LayerState>,
    /// Of each token so far since the cache was emptied.
    tokens: u64,
    session: Option<u32>,
    learnt: bool,
    predictor: Option<Predictor>,
    tally: Tally,
    scratch: Scratch,
}

/// What belongs to one layer.
struct LayerState {
    pool: usize,
    base: u32,
    bytes: u64,
    /// Whether the cache has ever had the expert since it was empty.
    seen: Vec<bool>,
    chooser: Option<Chooser>,
    /// What was fetched ahead for the request that comes next.
    ahead: Vec<u16>,
}

#[derive(Default)]
struct Scratch {
    keys: Vec<u32>,
    missed: Vec<u32>,
    chosen: Vec<u16>,
    distinct: Vec<u16>,
    before: Vec<u16>,
}

impl Simulation {
    /// An empty cache.
    ///
    /// # Errors
    /// When the run does not go with the trace.
    pub fn new(
        meta: &Arc<TraceMeta>,
        spec: RunSpec,
        options: ReplayOptions,
    ) -> Result<Simulation, ReplayError> {
        let pools = spec.pools(meta)?;
        let aware = spec.cache_aware.filter(|aware| aware.lambda > 0.0);
        let mut layers = Vec::with_capacity(meta.layers.len());
        for (at, pool) in pools.iter().enumerate() {
            let mut base = 0;
            for layer in &meta.layers[pool.layers.clone()] {
                layers.push(LayerState {
                    pool: at,
                    base,
                    bytes: layer.bytes_per_expert(),
                    seen: vec![false; layer.n_expert as usize],
                    chooser: aware.map(Chooser::new),
                    ahead: Vec::new(),
                });
                base += layer.n_expert;
            }
        }
        Ok(Simulation {
            spec,
            options,
            meta: Arc::clone(meta),
            pools: pools.into_iter().map(|pool| spec.policy.build(pool.space)).collect(),
            layers,
            tokens: 0,
            session: None,
            learnt: false,
            predictor: spec.prefetch.map(|_| Predictor::new(meta)),
            tally: Tally::default(),
            scratch: Scratch::default(),
        })
    }

    /// Replays a part of the trace.
    pub fn feed(&mut self, chunk: &Chunk) {
        for (at, group) in chunk.groups.iter().enumerate() {
            self.serve(chunk, (at, group));
        }
    }

    /// As [`Simulation::feed`], for a trace of one layer whose tokens are requested one by one: adds the experts that each token
    /// goes to, the best first, to `chosen`.
    pub fn route(&mut self, chunk: &Chunk, chosen: &mut Vec<u16>) {
        let width = self.meta.candidates as usize;
        for (at, group) in chunk.groups.iter().enumerate() {
            self.serve(chunk, (at, group));
            match self.layers.first().map(|layer| layer.chooser.is_some()) {
                Some(true) => chosen.extend_from_slice(&self.scratch.chosen),
                _ => {
                    let used = self.meta.layers.first().map_or(0, |layer| layer.n_expert_used as usize);
                    let rows = group.rows.clone();
                    rows.for_each(|row| chosen.extend_from_slice(&chunk.batch.ids[row * width..][..used]));
                }
            }
        }
    }

    fn serve(&mut self, chunk: &Chunk, (at, group): (usize, &Group)) {
        self.begin_session(group.session);
        let steady = self.tokens >= self.options.warmup;
        if steady && !std::mem::replace(&mut self.learnt, true) {
            self.pools.iter_mut().for_each(|pool| pool.end_warmup());
        }
        let mut counts = Counts { tokens: group.rows.len() as u64, ..Counts::default() };
        for layer in 0..self.layers.len() {
            self.request(chunk, (at, group), layer, steady, &mut counts);
        }
        let place = Place { phase: group.phase, turn: group.turn, steady };
        self.tally.add(&counts, place);
        self.tokens += counts.tokens;
        self.tally.longest = self.tally.longest.max(self.tokens);
    }

    fn begin_session(&mut self, session: u32) {
        if self.session.replace(session).is_none_or(|before| before == session || self.options.carry) {
            return;
        }
        self.pools.iter_mut().for_each(|pool| pool.clear());
        self.layers.iter_mut().for_each(|layer| layer.seen.fill(false));
        self.tokens = 0;
    }

    fn request(
        &mut self,
        chunk: &Chunk,
        (at, group): (usize, &Group),
        layer: usize,
        steady: bool,
        counts: &mut Counts,
    ) {
        let n_layers = self.layers.len();
        let shape = &self.meta.layers[layer];
        let state = &mut self.layers[layer];
        let pool = self.pools[state.pool].as_mut();
        let scratch = &mut self.scratch;
        let experts = match &mut state.chooser {
            None => chunk.experts_of(at, layer, n_layers),
            Some(chooser) => {
                scratch.chosen.clear();
                for row in group.rows.clone() {
                    let token = candidates(chunk, &self.meta, row, layer);
                    chooser.choose(token, pool, state.base, &mut scratch.chosen);
                }
                distinct(&scratch.chosen, &mut scratch.distinct);
                scratch.distinct.as_slice()
            }
        };
        scratch.keys.clear();
        scratch.keys.extend(experts.iter().map(|expert| state.base + u32::from(*expert)));
        scratch.missed.clear();
        let candidates = Candidates {
            batch: &chunk.batch,
            first: group.rows.start,
            end: group.rows.end,
            layer,
            n_layers,
            width: self.meta.candidates as usize,
            base: state.base,
        };
        pool.request(
            &Request {
                keys: &scratch.keys,
                n_tokens: group.rows.len() as u32,
                n_expert_used: shape.n_expert_used,
                n_expert: shape.n_expert,
                candidates: Some(candidates),
            },
            &mut scratch.missed,
        );
        let mut misses = 0;
        for &key in &scratch.missed {
            let expert = (key - state.base) as u16;
            let new = !std::mem::replace(&mut state.seen[usize::from(expert)], true);
            if self.spec.prefetch.is_some_and(|plan| plan.place == PrefetchPlace::Staging)
                && state.ahead.contains(&expert)
            {
                continue;
            }
            misses += 1;
            match (new, steady) {
                (true, _) => self.tally.cold_misses += 1,
                (false, false) => self.tally.warm_misses += 1,
                (false, true) => self.tally.steady_misses += 1,
            }
        }
        let missed = scratch.missed.len() as u64;
        counts.requests += scratch.keys.len() as u64;
        counts.hits += scratch.keys.len() as u64 - missed;
        counts.staged += missed - misses;
        counts.misses += misses;
        counts.bytes = counts.bytes.saturating_add(misses.saturating_mul(state.bytes));
        if self.predictor.is_some() {
            self.prefetch(group, layer);
        }
    }

    /// Learns from the request that was served, and fetches for the next layer.
    fn prefetch(&mut self, group: &Group, layer: usize) {
        let (Some(predictor), Some(plan)) = (&mut self.predictor, self.spec.prefetch) else { return };
        let state = &mut self.layers[layer];
        let here: Vec<u16> = self.scratch.keys.iter().map(|key| (key - state.base) as u16).collect();
        for expert in std::mem::take(&mut state.ahead) {
            let useful = here.contains(&expert);
            self.tally.prefetch.useful += u64::from(useful);
            let counts = &mut self.tally.prefetch;
            let bytes = if useful { &mut counts.useful_bytes } else { &mut counts.wasted_bytes };
            *bytes = bytes.saturating_add(state.bytes);
        }
        // A ubatch of prefill is no single token, however many it has.
        if group.phase == Phase::Prefill && !self.options.one_by_one {
            return;
        }
        if layer > 0 {
            predictor.learn(layer - 1, &self.scratch.before, &here);
        }
        let pinned = self.layers.get(layer + 1).is_some_and(|next| next.pool == self.layers[layer].pool);
        let pinned = if pinned { self.scratch.keys.as_slice() } else { &[] };
        if let Some(next) = self.layers.get_mut(layer + 1) {
            let pool = self.pools[next.pool].as_mut();
            for &expert in predictor.expect(layer, &here) {
                if next.ahead.len() == plan.experts as usize {
                    break;
                }
                let key = next.base + u32::from(expert);
                let taken = !pool.holds(key)
                    && match plan.place {
                        PrefetchPlace::Staging => true,
                        PrefetchPlace::Tail => pool.take_ahead(key, Ahead::Tail, pinned),
                        PrefetchPlace::Evicting => pool.take_ahead(key, Ahead::Front, pinned),
                    };
                if taken {
                    next.ahead.push(expert);
                    next.seen[usize::from(expert)] = true;
                    self.tally.prefetch.fetched += 1;
                }
            }
        }
        self.scratch.before = here;
    }

    /// What was counted so far: in all, and of that after the warm-up.
    pub fn counts(&self) -> (Counts, Counts) {
        (self.tally.all, self.tally.steady)
    }

    /// Checks that tokens came, and some of them after the warm-up.
    ///
    /// # Errors
    /// When the trace was too short to say anything of a steady cache.
    pub fn check_length(&self) -> Result<(), ReplayError> {
        if self.tally.all.tokens == 0 {
            return Err(ReplayError::Empty);
        }
        if self.tally.steady.tokens == 0 {
            return Err(ReplayError::TooShort { tokens: self.tally.longest, warmup: self.options.warmup });
        }
        Ok(())
    }

    /// What was counted.
    ///
    /// # Errors
    /// As [`Simulation::check_length`].
    pub fn finish(self, model: Option<TransferModel>) -> Result<RunResult, ReplayError> {
        self.check_length()?;
        Ok(RunResult::new(&self.spec, &self.meta, &self.tally, model))
    }
}

fn candidates<'a>(chunk: &'a Chunk, meta: &TraceMeta, row: usize, layer: usize) -> TokenCandidates<'a> {
    let width = meta.candidates as usize;
    let at = row * meta.layers.len() + layer;
    TokenCandidates {
        ids: &chunk.batch.ids[at * width..(at + 1) * width],
        values: chunk.batch.values.get(at * width..(at + 1) * width).unwrap_or_default(),
        z_min: chunk.batch.z_min.get(at).copied().unwrap_or(0.0),
        n_expert_used: meta.layers[layer].n_expert_used as usize,
    }
}

/// Each of `experts` once, in order of first appearance.
fn distinct(experts: &[u16], into: &mut Vec<u16>) {
    let mut seen = [0_u64; 16];
    into.clear();
    for &expert in experts {
        let (word, bit) = (usize::from(expert) / 64, 1 << (expert % 64));
        if seen[word] & bit == 0 {
            seen[word] |= bit;
            into.push(expert);
        }
    }
}
