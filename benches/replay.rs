//! Replaying a generated trace: accesses a second of one cache on one core, of the optimum, of the curve of LRU, and of many
//! caches on all cores. Beside LRU stands the crate `lru` with the same accesses, one by one, and
//! what libCacheSim publishes.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use moeslice::cache::PolicyKind;
use moeslice::progress::Interrupt;
use moeslice::replay::{Capacity, Chunk, LruCurve, ReplayOptions, RunSpec, Simulation, Steps, replay};
use moeslice::trace::{Batch, Phase, RouterValues, Row, TraceError, TraceLayer, TraceMeta, TraceReader};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;

const LAYERS: usize = 48;
const EXPERTS: u32 = 128;
const USED: u32 = 8;
const CAPACITY: u32 = 64;
const TOKENS: u64 = 4096;

/// Decode of a model of 48 layers with 128 experts. Low ids are favoured, and a token tends to go where the one before it
/// went, as routers do.
fn trace() -> (TraceMeta, Batch) {
    let layer = |layer| TraceLayer { layer, n_expert: EXPERTS, n_expert_used: USED, slabs: vec![1 << 20] };
    let meta = TraceMeta::new((0..LAYERS as u32).map(layer).collect(), USED, RouterValues::None);
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1_u64 << 24) as f64
    };
    let mut batch = Batch::default();
    let mut before = vec![Vec::new(); LAYERS];
    for token in 0..TOKENS {
        let (position, phase) = (token as u32, Phase::Decode);
        batch.rows.push(Row { session: 0, turn: 0, phase, ubatch: token, position, token: 0 });
        for before in &mut before {
            let mut chosen: Vec<u16> = before.iter().copied().filter(|_| draw() < 0.3).collect();
            while chosen.len() < USED as usize {
                let id = (f64::from(EXPERTS) * draw().powf(1.5)) as u16;
                if !chosen.contains(&id) {
                    chosen.push(id);
                }
            }
            batch.ids.extend_from_slice(&chosen);
            *before = chosen;
        }
    }
    (meta, batch)
}

/// The trace in memory.
struct InMemory {
    meta: TraceMeta,
    left: Option<Batch>,
}

impl TraceReader for InMemory {
    fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        *batch = self.left.take().unwrap_or_default();
        Ok(!batch.rows.is_empty())
    }
}

/// What the crate `lru` misses with the same accesses.
fn crate_lru(batch: &Batch) -> u64 {
    let capacity = NonZeroUsize::new(CAPACITY as usize).expect("not 0");
    let mut caches: Vec<lru::LruCache<u16, ()>> = (0..LAYERS).map(|_| lru::LruCache::new(capacity)).collect();
    let mut misses = 0;
    for ids in batch.ids.chunks_exact(LAYERS * USED as usize) {
        for (cache, ids) in caches.iter_mut().zip(ids.chunks_exact(USED as usize)) {
            for id in ids {
                misses += u64::from(cache.put(*id, ()).is_none());
            }
        }
    }
    misses
}

fn bench(criterion: &mut Criterion) {
    let (meta, batch) = trace();
    let meta = Arc::new(meta);
    let options = ReplayOptions { warmup: 0, ..ReplayOptions::new(1) };
    let mut steps = Steps::new(&meta, false);
    let chunk: Chunk = steps.add(&mut batch.clone()).expect("ubatches are small").expect("decode is whole");
    let spec = |policy, capacity| RunSpec::plain(policy, capacity);
    let simulation = |spec| Simulation::new(&meta, spec, options).expect("the run goes with the trace");

    let mut group = criterion.benchmark_group("accesses on one core");
    group.throughput(Throughput::Elements(chunk.accesses())).sample_size(20);
    let per_layer = Capacity::Experts(CAPACITY);
    let pooled = Capacity::Slots(CAPACITY * LAYERS as u32);
    for (name, spec) in [
        ("lru", spec(PolicyKind::Lru, per_layer)),
        ("slru", spec(PolicyKind::Slru, per_layer)),
        ("belady", spec(PolicyKind::Belady, per_layer)),
        ("belady, one cache for all layers", spec(PolicyKind::Belady, pooled)),
        ("lfu", spec(PolicyKind::Lfu, per_layer)),
        ("arc", spec(PolicyKind::Arc, per_layer)),
        ("ema", spec(PolicyKind::Ema, per_layer)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(|| simulation(spec), |cache| cache.feed(&chunk), BatchSize::LargeInput);
        });
    }
    group.bench_function("curve of lru", |bencher| {
        let curve = || LruCurve::new(&meta, false);
        bencher.iter_batched_ref(curve, |curve| curve.feed(&chunk), BatchSize::LargeInput);
    });
    group.bench_function("lru, by the crate lru", |bencher| bencher.iter(|| crate_lru(black_box(&batch))));
    group.finish();
    println!("lru, by libCacheSim as it publishes: 20 Melem/s, of keys that are not dense\n");

    // The crate may evict an expert that the same token is about to use; for the rest both do the same.
    let mut lru = simulation(spec(PolicyKind::Lru, per_layer));
    lru.feed(&chunk);
    let ours = lru.finish(None).expect("the trace has tokens").all.counts.misses;
    let theirs = crate_lru(&batch);
    assert!(ours <= theirs && theirs - ours < theirs / 50, "{ours} and {theirs} misses");

    let specs: Vec<RunSpec> = [16, 32, 64, 96]
        .into_iter()
        .flat_map(|n| [PolicyKind::Lru, PolicyKind::Belady].map(|policy| spec(policy, Capacity::Experts(n))))
        .collect();
    let mut group = criterion.benchmark_group("8 caches from one read");
    group.throughput(Throughput::Elements(chunk.accesses() * specs.len() as u64)).sample_size(10);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, cores] {
        group.bench_function(format!("{threads} threads"), |bencher| {
            let options = ReplayOptions { threads, ..options };
            let read = || InMemory { meta: meta.as_ref().clone(), left: Some(batch.clone()) };
            let run = |mut trace: InMemory| {
                replay(&mut trace, &specs, options, None, Interrupt::NEVER, &mut |_| {})
                    .expect("it is replayed")
            };
            bencher.iter_batched(read, run, BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
