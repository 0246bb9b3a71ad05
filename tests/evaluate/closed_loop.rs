//! A cache that takes part in the routing of the model.

use crate::{demo, load, windows};
use moeslice::cache::PolicyKind;
use moeslice::evaluate::{CacheLoop, EvalCorpus, Losses, Scorer, measure};
use moeslice::llama::{ContextSettings, Model, Node, ObserveError, Observer, Site};
use moeslice::moe::MoeModel;
use moeslice::profile::TraceRecorder;
use moeslice::progress::Silent;
use moeslice::replay::{
    CacheAware, Capacity, Counts, DeltaReading, ReplayOptions, RunSpec, Simulation, Steps,
};
use moeslice::trace::{Batch, Phase, RouterValues, Row, TraceLayer, TraceMeta};
use moeslice::windows::{KvUnified, Window, WindowOptions};
use std::sync::Arc;

const WINDOWS: usize = 3;
const TOKENS: usize = 160;

/// The demo model, and windows that are longer than a ubatch and than a batch.
struct Case {
    moe: MoeModel,
    model: Model,
    corpora: [EvalCorpus; 1],
}

impl Case {
    fn new() -> Case {
        let (moe, model) = load(&demo());
        let window = |tokens: Vec<_>| Window { parts: vec![0; tokens.len()], tokens, answer: None };
        let windows = windows(&model, WINDOWS, TOKENS).into_iter().map(window).collect();
        Case { moe, model, corpora: [EvalCorpus { name: "text".into(), windows }] }
    }

    fn measure(&self, observer: &mut dyn Observer) -> Losses {
        let options = WindowOptions {
            ctx_size: TOKENS as u32,
            batch_size: 96,
            ubatch_size: 32,
            kv_unified: KvUnified::Auto,
            settings: ContextSettings::default(),
        };
        let mut scorer = Scorer::one_by_one(&self.model, &self.moe.experts, &options).unwrap();
        measure(&mut scorer, &self.corpora, None, observer, &mut Silent).unwrap()
    }

    fn open(&self, specs: &[RunSpec], options: ReplayOptions) -> (Losses, Vec<Counts>) {
        let mut open = CacheLoop::open(&self.moe.experts, lengths(), specs, options).unwrap();
        let losses = self.measure(&mut open);
        (losses, open.finish().unwrap().into_iter().map(|counts| counts.all).collect())
    }

    fn closed(&self, spec: RunSpec, options: ReplayOptions) -> (Losses, Counts) {
        let mut closed = CacheLoop::closed(&self.moe.experts, lengths(), spec, options).unwrap();
        let losses = self.measure(&mut closed);
        (losses, closed.finish().unwrap()[0].all)
    }
}

fn lengths() -> Vec<u32> {
    vec![TOKENS as u32; WINDOWS]
}

fn spec(policy: PolicyKind, lambda: f64) -> RunSpec {
    let aware = CacheAware { lambda, top: 1, delta: DeltaReading::Ema99 };
    RunSpec { cache_aware: Some(aware), ..RunSpec::plain(policy, Capacity::Experts(8)) }
}

fn options(carry: bool) -> ReplayOptions {
    ReplayOptions { warmup: 64, carry, ..ReplayOptions::new(1) }
}

#[test]
fn cache_that_counts_for_nothing_leaves_the_routing_as_it_is() {
    let case = Case::new();
    let spec = spec(PolicyKind::Lru, 0.0);
    let (plain, open) = case.open(&[spec], options(false));
    let (closed, counts) = case.closed(spec, options(false));
    assert_eq!(closed, plain, "the same in every bit");
    assert_eq!(counts, open[0]);
    assert!(counts.hits > 0 && counts.misses > 0 && counts.tokens == (WINDOWS * TOKENS) as u64, "{counts:?}");
}

#[test]
fn cache_that_counts_is_missed_less_and_changes_what_the_model_says() {
    let case = Case::new();
    let specs = [0.0, 0.2, 1.0].map(|lambda| spec(PolicyKind::Lru, lambda));
    let (plain, open) = case.open(&specs, options(false));
    let (little, at_little) = case.closed(specs[1], options(false));
    let (much, at_much) = case.closed(specs[2], options(false));
    assert!(little != plain && much != little);
    assert!(at_much.misses < at_little.misses && at_little.misses < open[0].misses);
    assert!(open[2].misses < open[1].misses && open[1].misses < open[0].misses);
    assert_ne!(at_much.misses, open[2].misses, "hidden states that drift lead to other routers' values");
    // A token goes to as many experts as before.
    assert_eq!(at_much.requests, open[0].requests);
}

/// Compares the gate weights of the selected experts with what the router made of their values.
struct Weights {
    inner: CacheLoop,
    rewritten: u64,
    checked: u64,
}

impl Observer for Weights {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        self.inner.wants(node) || matches!(node.site(), Some((Site::Weights, _)))
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((Site::Weights, _)) = node.site() else { return self.inner.observe(node) };
        let (mut weights, mut probabilities, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        node.read_floats(&mut weights)?;
        node.source(0).unwrap().read_floats(&mut probabilities)?;
        let source = node.source(1).unwrap();
        let used = source.dims()[0];
        source.read_ids(used, &mut ids)?;
        let n_expert = probabilities.len() / (ids.len() / used);
        for (token, ids) in ids.chunks_exact(used).enumerate() {
            let of_token = &probabilities[token * n_expert..(token + 1) * n_expert];
            for (rank, &id) in ids.iter().enumerate() {
                assert_eq!(weights[token * used + rank], of_token[id as usize]);
                self.checked += 1;
            }
            let least = ids.iter().map(|&id| of_token[id as usize]).fold(f32::INFINITY, f32::min);
            let above = of_token.iter().filter(|&&probability| probability > least).count();
            self.rewritten += u64::from(above >= used);
        }
        Ok(())
    }
}

#[test]
fn gate_weights_come_from_the_router_and_not_from_the_cache() {
    let case = Case::new();
    let inner =
        CacheLoop::closed(&case.moe.experts, lengths(), spec(PolicyKind::Lru, 1.0), options(false)).unwrap();
    let mut weights = Weights { inner, rewritten: 0, checked: 0 };
    case.measure(&mut weights);
    assert!(weights.checked >= 4 * 4 * (WINDOWS * TOKENS) as u64, "{}", weights.checked);
    assert!(
        weights.rewritten > 100,
        "experts were chosen that the router alone would not: {}",
        weights.rewritten
    );
}

#[test]
fn open_loop_counts_as_a_replay_of_the_recorded_routing() {
    let case = Case::new();
    let experts = &case.moe.experts;
    let mut recorder = TraceRecorder::new(&experts.layers, experts.groups, experts.n_expert);
    let row = |session: usize, position: usize| Row {
        session: session as u32,
        turn: 0,
        phase: Phase::Prefill,
        ubatch: 0,
        position: position as u32,
        token: 0,
    };
    recorder.expect((0..WINDOWS).flat_map(|at| (0..TOKENS).map(move |position| row(at, position))));
    case.measure(&mut recorder);
    let mut recorded = Batch::default();
    recorder.take(&mut recorded).unwrap();
    let layers = experts.layers.iter().map(TraceLayer::of).collect();
    let meta = Arc::new(TraceMeta::new(layers, experts.n_expert, RouterValues::Logits));
    for carry in [false, true] {
        let policies = [PolicyKind::Lru, PolicyKind::InverseRouterEma, PolicyKind::Static, PolicyKind::Slru];
        let mut specs: Vec<RunSpec> = policies.into_iter().map(|policy| spec(policy, 0.3)).collect();
        specs.push(spec(PolicyKind::Belady, 0.0));
        let (_, counted) = case.open(&specs, options(carry));
        for (spec, counted) in specs.into_iter().zip(counted) {
            let replayed = ReplayOptions { one_by_one: true, ..options(carry) };
            let mut simulation = Simulation::new(&meta, spec, replayed).unwrap();
            let mut steps = Steps::new(&meta, true);
            simulation.feed(&steps.add(&mut recorded.clone()).unwrap().unwrap());
            assert_eq!(simulation.counts().0, counted, "{} carry {carry}", spec.policy);
        }
    }
}

#[test]
fn what_cannot_be_closed_is_refused() {
    let case = Case::new();
    let experts = &case.moe.experts;
    let refusal = |spec, options| match CacheLoop::closed(experts, lengths(), spec, options) {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    };
    assert!(refusal(spec(PolicyKind::Belady, 0.1), options(false)).contains("belady knows what comes"));
    let small = RunSpec { capacity: Capacity::Experts(3), ..spec(PolicyKind::Lru, 0.1) };
    assert!(refusal(small, options(false)).contains("below the 4 that a token uses in layer 0"));
    let never_steady = ReplayOptions { warmup: 1000, ..options(false) };
    let mut open = CacheLoop::open(experts, lengths(), &[spec(PolicyKind::Lru, 0.0)], never_steady).unwrap();
    case.measure(&mut open);
    assert!(open.finish().unwrap_err().to_string().contains("warm-up of 1000"));
    let more = vec![TOKENS as u32; WINDOWS + 1];
    let mut short = CacheLoop::open(experts, more, &[spec(PolicyKind::Lru, 0.0)], options(false)).unwrap();
    case.measure(&mut short);
    let error = short.finish().unwrap_err().to_string();
    assert!(error.contains("layer 0 showed the routing of 480 of 640 tokens"), "{error}");
}
