use super::*;
use crate::cache::{PolicyKind, Request, Space};
use crate::random::SplitMix;
use crate::trace::test_trace::{meta, tokens};
use crate::trace::{Batch, Phase, RouterValues, TraceError, TraceMeta, TraceReader};
use std::sync::Arc;

mod properties;

/// A trace in memory, in batches of `width` tokens.
struct InMemory {
    meta: TraceMeta,
    left: Batch,
    width: usize,
}

impl TraceReader for InMemory {
    fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let rest = self.left.split_off(self.width.min(self.left.rows.len()), &self.meta);
        *batch = std::mem::replace(&mut self.left, rest);
        Ok(!batch.rows.is_empty())
    }
}

const SMALL: &[(u32, u32, u64)] = &[(7, 2, 1), (7, 2, 1), (7, 2, 1)];

fn options() -> ReplayOptions {
    ReplayOptions { warmup: 0, threads: 2, curve: true, ..ReplayOptions::new(2) }
}

fn run_all(
    meta: &TraceMeta,
    batch: &Batch,
    specs: &[RunSpec],
    options: ReplayOptions,
    width: usize,
) -> Replay {
    let mut trace = InMemory { meta: meta.clone(), left: batch.clone(), width };
    let interrupt = crate::progress::Interrupt::NEVER;
    replay(&mut trace, specs, options, None, interrupt, &mut |_| {}).unwrap().unwrap()
}

fn refusal(meta: &TraceMeta, batch: &Batch, spec: RunSpec, options: ReplayOptions) -> ReplayError {
    let mut trace = InMemory { meta: meta.clone(), left: batch.clone(), width: 10 };
    let interrupt = crate::progress::Interrupt::NEVER;
    replay(&mut trace, &[spec], options, None, interrupt, &mut |_| {}).unwrap_err()
}

fn specs(capacity: Capacity) -> Vec<RunSpec> {
    PolicyKind::ALL.into_iter().map(|policy| RunSpec::plain(policy, capacity)).collect()
}

fn row(replay: &Replay, policy: PolicyKind) -> &RunResult {
    replay.rows.iter().find(|row| row.policy == policy.name()).unwrap()
}

/// One layer, one token a row, with these experts in order of rank.
fn decode(n_expert: u32, experts: &[&[u16]]) -> (TraceMeta, Batch) {
    let used = experts[0].len() as u32;
    let mut meta = meta(&[(n_expert, used, 5)], RouterValues::None);
    meta.candidates = used;
    let mut batch = Batch::default();
    for (at, experts) in (0..).zip(experts) {
        let (phase, token) = (Phase::Decode, -1);
        batch.rows.push(crate::trace::Row {
            session: 0,
            turn: 0,
            phase,
            ubatch: at.into(),
            position: at,
            token,
        });
        batch.ids.extend_from_slice(experts);
    }
    (meta, batch)
}

fn misses(policy: PolicyKind, capacity: u32, (meta, batch): &(TraceMeta, Batch)) -> u64 {
    let spec = RunSpec::plain(policy, Capacity::Experts(capacity));
    run_all(meta, batch, &[spec], options(), 10).rows[0].all.counts.misses
}

#[test]
fn policies_by_hand_miss_what_their_definitions_say() {
    // 0 1 2 0 3 0 in a cache of 3: FIFO evicts 0 for 3, LRU evicts 1.
    let single: Vec<&[u16]> = vec![&[0], &[1], &[2], &[0], &[3], &[0]];
    let trace = decode(8, &single);
    assert_eq!(misses(PolicyKind::Fifo, 3, &trace), 5);
    assert_eq!(misses(PolicyKind::Lru, 3, &trace), 4);
    assert_eq!(misses(PolicyKind::Sieve, 3, &trace), 4);
    // LFU keeps 0, requested twice, though 1 and 2 are newer.
    let single: Vec<&[u16]> = vec![&[0], &[0], &[1], &[2], &[0], &[3], &[4], &[0]];
    assert_eq!(misses(PolicyKind::Lfu, 2, &decode(8, &single)), 5);
    assert_eq!(misses(PolicyKind::Lru, 2, &decode(8, &single)), 7);
    // SLRU: of 4 slots 2 are protected; a scan does not wash them out, as it does with LRU.
    let scan: Vec<&[u16]> = vec![&[0], &[1], &[0], &[1], &[2], &[3], &[4], &[5], &[0], &[1]];
    assert_eq!(misses(PolicyKind::Slru, 4, &decode(8, &scan)), 6);
    assert_eq!(misses(PolicyKind::Lru, 4, &decode(8, &scan)), 8);
    // Admission streams what was requested less than what it would evict.
    assert_eq!(misses(PolicyKind::FrequencyAdmission, 2, &decode(8, &scan)), 6);
}

#[test]
fn static_set_is_chosen_on_the_warm_up_and_measured_after_it() {
    let single: Vec<&[u16]> = vec![&[0], &[0], &[1], &[2], &[0], &[1], &[2], &[2], &[2]];
    let (meta, batch) = decode(8, &single);
    let spec = RunSpec::plain(PolicyKind::Static, Capacity::Experts(1));
    let replay = run_all(&meta, &batch, &[spec], ReplayOptions { warmup: 4, ..options() }, 3);
    let row = &replay.rows[0];
    assert_eq!(
        (row.steady.counts.requests, row.steady.counts.hits),
        (5, 1),
        "0 was the most requested of the first 4"
    );
    assert_eq!(row.all.counts.misses, 8);
}

#[test]
fn impossible_runs_are_refused_with_the_reason() {
    let meta = meta(&[(8, 2, 10), (8, 3, 20)], RouterValues::None);
    let batch = tokens(&meta, 30, 30, 4, 1);
    let lru = |capacity| RunSpec::plain(PolicyKind::Lru, capacity);
    let aware = Some(CacheAware { lambda: 0.1, top: 0, delta: DeltaReading::Token });
    let belady = RunSpec::plain(PolicyKind::Belady, Capacity::Bytes(1000));
    let tail = Some(PrefetchPlan { place: PrefetchPlace::Tail, experts: 1 });
    let arc = RunSpec::plain(PolicyKind::Arc, Capacity::Experts(4));
    for (spec, warmup, part) in [
        (lru(Capacity::Experts(2)), 1, "below the 3 that a token uses in layer 1"),
        (
            lru(Capacity::Bytes(59)),
            1,
            "cannot hold the 3 experts that a token uses in layer 1, which take 60 bytes",
        ),
        (belady, 1, "needs experts of one size"),
        (lru(Capacity::Experts(8)), 30, "30 tokens in its longest stretch"),
        (
            RunSpec { cache_aware: aware, ..RunSpec::plain(PolicyKind::Belady, Capacity::Experts(8)) },
            1,
            "depends on the cache",
        ),
        (RunSpec { cache_aware: aware, ..lru(Capacity::Experts(8)) }, 1, "no router values"),
        (RunSpec { prefetch: tail, ..arc }, 1, "arc takes no experts"),
    ] {
        let error = refusal(&meta, &batch, spec, ReplayOptions { warmup, ..options() }).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn global_cache_below_a_token_scores_nothing_and_the_guard_says_so() {
    let meta = meta(&[(8, 2, 10); 4], RouterValues::Logits);
    let mut batch = tokens(&meta, 200, 200, 4, 3);
    batch.rows.iter_mut().for_each(|row| row.phase = Phase::Decode);
    let spec = |bytes| RunSpec::plain(PolicyKind::Lru, Capacity::Bytes(bytes));
    assert_eq!(working_set(&meta), 80);
    let guard = Guard::of(&spec(60), &meta).unwrap().to_string();
    assert!(guard.contains("60 bytes") && guard.contains("8 experts of one token (80 bytes)"), "{guard}");
    assert_eq!(Guard::of(&spec(80), &meta), None);
    let belady = RunSpec::plain(PolicyKind::Belady, Capacity::Bytes(60));
    let replay = run_all(&meta, &batch, &[spec(60), belady, spec(320)], options(), 50);
    assert_eq!(replay.rows[0].all.hit_rate, 0.0);
    assert!(replay.rows[1].all.hit_rate > 0.1);
    assert!(replay.rows[2].all.hit_rate > 0.9);
}

#[test]
fn session_begins_cold_unless_the_cache_carries_over() {
    let meta = meta(SMALL, RouterValues::None);
    let batch = tokens(&meta, 100, 10, 4, 5);
    let spec = RunSpec::plain(PolicyKind::Lru, Capacity::Experts(7));
    let cold = run_all(&meta, &batch, &[spec], options(), 10);
    let carried = run_all(&meta, &batch, &[spec], ReplayOptions { carry: true, ..options() }, 10);
    assert_eq!(carried.rows[0].all.counts.misses, carried.rows[0].cold_misses);
    assert!(carried.rows[0].cold_misses <= 21, "each of 3 × 7 experts once");
    assert!(cold.rows[0].cold_misses > 5 * carried.rows[0].cold_misses);
}

#[test]
fn cache_aware_routing_trades_choices_for_hits() {
    let meta = meta(&[(16, 2, 1); 2], RouterValues::Logits);
    let batch = tokens(&meta, 400, 400, 4, 7);
    let at = |lambda| RunSpec {
        cache_aware: Some(CacheAware { lambda, top: 1, delta: DeltaReading::Ema99 }),
        ..RunSpec::plain(PolicyKind::Lru, Capacity::Experts(4))
    };
    let replay = run_all(&meta, &batch, &[at(0.0), at(0.1), at(0.5)], options(), 50);
    let misses: Vec<u64> = replay.rows.iter().map(|row| row.decode.counts.misses).collect();
    assert!(misses[0] > misses[1] && misses[1] > misses[2], "{misses:?}");
    assert!(replay.rows[1].cache_aware.as_ref().unwrap().open_loop);
}

#[test]
fn prefetch_of_a_fixed_sequence_is_useful_and_evicts_nothing_when_staged() {
    // Layer 1 always goes where layer 0 goes.
    let meta = meta(&[(8, 1, 3), (8, 1, 3)], RouterValues::None);
    let mut batch = tokens(&meta, 0, 1, 1, 0);
    let mut random = SplitMix(9);
    for at in 0..300 {
        let expert = random.below(8) as u16;
        let (phase, token) = (Phase::Decode, -1);
        batch.rows.push(crate::trace::Row {
            session: 0,
            turn: 0,
            phase,
            ubatch: at.into(),
            position: at,
            token,
        });
        for _ in 0..2 {
            batch.ids.push(expert);
            batch.ids.extend((0..8).filter(|other| *other != expert));
        }
    }
    let spec = |place: Option<PrefetchPlace>| RunSpec {
        prefetch: place.map(|place| PrefetchPlan { place, experts: 1 }),
        ..RunSpec::plain(PolicyKind::Lru, Capacity::Experts(3))
    };
    let places =
        [None, Some(PrefetchPlace::Staging), Some(PrefetchPlace::Tail), Some(PrefetchPlace::Evicting)];
    let replay = run_all(&meta, &batch, &places.map(spec), options(), 50);
    let [plain, staged, tail, evicting] = &replay.rows[..] else { panic!("four rows") };
    assert_eq!(staged.all.counts.hits, plain.all.counts.hits, "the cache itself is the same");
    let counts = staged.prefetch.as_ref().unwrap().counts;
    assert_eq!(staged.all.counts.staged, counts.useful);
    assert_eq!((counts.useful_bytes + counts.wasted_bytes) / 3, counts.fetched);
    assert!(counts.useful * 10 > counts.fetched * 9, "{counts:?}");
    for row in [tail, evicting] {
        assert!(row.all.counts.misses * 10 < plain.all.counts.misses * 6, "{}", row.all.counts.misses);
        assert_eq!(row.all.counts.hits + row.all.counts.misses, row.all.counts.requests);
    }
}

#[test]
fn simulation_of_the_same_trace_twice_gives_the_same_counts() {
    let meta = meta(SMALL, RouterValues::Logits);
    let batch = tokens(&meta, 200, 50, 4, 11);
    let spec = RunSpec::plain(PolicyKind::Random, Capacity::Experts(3));
    let counts = |_| run_all(&meta, &batch, &[spec], options(), 17).rows[0].clone();
    assert_eq!(counts(0), counts(1));
    assert!(Simulation::new(&Arc::new(meta), spec, options()).is_ok());
}
