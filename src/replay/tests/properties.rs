//! What holds of every trace.

use super::*;
use proptest::prelude::*;

/// Tokens of a trace, by a few numbers.
fn trace() -> impl Strategy<Value = (TraceMeta, Batch)> {
    (1..60_u32, 4..40_u32, 1..6_u32, any::<u64>()).prop_map(|(n, session, ubatch, seed)| {
        let meta = meta(SMALL, RouterValues::Logits);
        let batch = tokens(&meta, n + 2, session, ubatch, seed);
        (meta, batch)
    })
}

fn capacity() -> impl Strategy<Value = Capacity> {
    prop_oneof![
        (2..9_u32).prop_map(Capacity::Experts),
        (2..22_u32).prop_map(Capacity::Slots),
        (3..22_u64).prop_map(Capacity::Bytes)
    ]
}

/// The fewest misses of one cache over requests, by looking at every content that it could have.
fn fewest_misses(requests: &[Vec<u32>], slots: u32, bypass: bool) -> u32 {
    use std::collections::HashMap;
    let mut states = HashMap::from([(0_u32, 0_u32)]);
    for request in requests {
        let members: u32 = request.iter().map(|key| 1 << key).sum();
        let mut next = HashMap::new();
        for (content, misses) in states {
            let misses = misses + (members & !content).count_ones();
            let all = content | members;
            let mut part = all;
            loop {
                let whole = bypass || members.count_ones() > slots || part & members == members;
                if part.count_ones() <= slots && whole {
                    let best = next.entry(part).or_insert(misses);
                    *best = misses.min(*best);
                }
                if part == 0 {
                    break;
                }
                part = (part - 1) & all;
            }
        }
        states = next;
    }
    states.into_values().min().unwrap_or(0)
}

proptest! {
    #[test]
    fn belady_misses_as_little_as_any_sequence_of_contents(
        seed in any::<u64>(), n in 1..14_usize, slots in 1..6_u32, bypass in any::<bool>(),
    ) {
        let mut random = SplitMix(seed);
        let requests: Vec<Vec<u32>> = (0..n)
            .map(|_| {
                let mut keys: Vec<u32> = (0..1 + random.below(3)).map(|_| random.below(7) as u32).collect();
                keys.sort_unstable();
                keys.dedup();
                keys
            })
            .collect();
        let kind = if bypass { PolicyKind::BeladyBypass } else { PolicyKind::Belady };
        let mut policy = kind.build(Space::slots(7, slots, 1));
        let mut missed = Vec::new();
        for keys in &requests {
            let request = Request { keys, n_tokens: 1, n_expert_used: 3, n_expert: 7, candidates: None };
            policy.request(&request, &mut missed);
        }
        prop_assert_eq!(missed.len() as u32, fewest_misses(&requests, slots, bypass));
    }

    #[test]
    fn no_policy_misses_less_than_belady((meta, batch) in trace(), capacity in capacity(), carry in any::<bool>()) {
        let replay = run_all(&meta, &batch, &specs(capacity), ReplayOptions { carry, ..options() }, 10);
        let (belady, bypass) = (row(&replay, PolicyKind::Belady), row(&replay, PolicyKind::BeladyBypass));
        for (kind, row) in PolicyKind::ALL.iter().zip(&replay.rows) {
            prop_assert!(bypass.all.counts.misses <= row.all.counts.misses, "{kind}");
            if kind.fills_on_demand() {
                prop_assert!(belady.all.counts.misses <= row.all.counts.misses, "{kind}");
            }
        }
    }

    #[test]
    fn hits_and_misses_of_every_policy_are_the_requests((meta, batch) in trace(), capacity in capacity()) {
        let replay = run_all(&meta, &batch, &specs(capacity), options(), 10);
        let requests = replay.rows[0].all.counts.requests;
        for row in &replay.rows {
            let all = row.all.counts;
            prop_assert_eq!(all.requests, requests, "{}", row.policy);
            prop_assert_eq!(all.hits + all.misses + all.staged, requests, "{}", row.policy);
            prop_assert_eq!(row.cold_misses + row.warm_misses + row.steady_misses, all.misses, "{}", row.policy);
            prop_assert_eq!(row.prefill.counts.requests + row.decode.counts.requests, requests);
            prop_assert_eq!(row.turns.iter().map(|turn| turn.counts.misses).sum::<u64>(), all.misses);
            prop_assert_eq!(all.tokens, batch.rows.len() as u64);
            prop_assert_eq!(all.bytes, all.misses, "each expert has one byte");
        }
    }

    #[test]
    fn curve_is_monotone_and_what_lru_counts_at_each_capacity((meta, batch) in trace(), carry in any::<bool>()) {
        let lru: Vec<RunSpec> =
            (2..=7).map(|n| RunSpec::plain(PolicyKind::Lru, Capacity::Experts(n))).collect();
        let replay = run_all(&meta, &batch, &lru, ReplayOptions { carry, ..options() }, 10);
        let curve = replay.curve.as_ref().unwrap();
        prop_assert!(curve.points.windows(2).all(|pair| pair[0].misses >= pair[1].misses));
        let counted: Vec<u64> = replay.rows.iter().map(|row| row.all.counts.misses).collect();
        let predicted: Vec<u64> = curve.points.iter().map(|point| point.misses).collect();
        prop_assert_eq!(counted, predicted);
        prop_assert_eq!(curve.points.last().unwrap().misses, curve.cold_misses);
    }

    #[test]
    fn replay_in_chunks_is_replay_at_once((meta, batch) in trace(), capacity in capacity(), width in 1..9_usize) {
        let once = run_all(&meta, &batch, &specs(capacity), options(), usize::MAX);
        prop_assert_eq!(&run_all(&meta, &batch, &specs(capacity), options(), width), &once);
        let alone = ReplayOptions { threads: 1, ..options() };
        prop_assert_eq!(&run_all(&meta, &batch, &specs(capacity), alone, width), &once);
    }

    #[test]
    fn cache_aware_routing_without_weight_is_the_plain_routing((meta, batch) in trace(), capacity in capacity()) {
        for policy in [PolicyKind::Lru, PolicyKind::NearPickEma, PolicyKind::Slru] {
            let plain = RunSpec::plain(policy, capacity);
            let aware = CacheAware { lambda: 1e-30, top: 1, delta: DeltaReading::Token };
            let aware = RunSpec { cache_aware: Some(aware), ..plain };
            let replay = run_all(&meta, &batch, &[plain, aware], options(), 10);
            prop_assert_eq!(replay.rows[0].all, replay.rows[1].all);
        }
    }

    #[test]
    fn sizes_in_bytes_are_never_exceeded(seed in any::<u64>(), room in 20..200_u64) {
        let meta = meta(&[(7, 2, 10), (5, 2, 3), (6, 1, 7)], RouterValues::Logits);
        let batch = tokens(&meta, 40, 20, 4, seed);
        for policy in PolicyKind::ALL.into_iter().filter(|policy| !policy.is_optimum()) {
            let spec = RunSpec::plain(policy, Capacity::Bytes(room));
            let pool = spec.pools(&meta).unwrap().remove(0);
            let mut cache = policy.build(pool.space.clone());
            let mut steps = Steps::new(&meta, false);
            let chunk = steps.add(&mut batch.clone()).unwrap().unwrap();
            let mut missed = Vec::new();
            for at in 0..chunk.groups.len() {
                for (layer, base) in [(0, 0), (1, 7), (2, 12)] {
                    let experts = chunk.experts_of(at, layer, 3);
                    let keys: Vec<u32> = experts.iter().map(|expert| base + u32::from(*expert)).collect();
                    let request = Request {
                        keys: &keys,
                        n_tokens: 1,
                        n_expert_used: 2,
                        n_expert: 7,
                        candidates: None,
                    };
                    missed.clear();
                    cache.request(&request, &mut missed);
                    let held: u64 = (0..18).filter(|key| cache.holds(*key)).map(|key| pool.space.size(key)).sum();
                    prop_assert!(held <= room, "{policy}: {held} of {room}");
                    let fits = keys.iter().map(|key| pool.space.size(*key)).sum::<u64>() <= room;
                    if policy.fills_on_demand() && fits {
                        prop_assert!(keys.iter().all(|key| cache.holds(*key)), "{policy} evicted a member");
                    }
                }
            }
        }
    }
}
