use super::*;
use crate::cache::PolicyKind;
use crate::page::frame::test_frame::{check_policy, data, markup};
use crate::progress::Interrupt;
use crate::replay::{Capacity, PrefetchPlace, PrefetchPlan, ReplayOptions, RunSpec, replay};
use crate::trace::test_trace::{meta, tokens};
use crate::trace::{Batch, RouterValues, TraceError, TraceReader};

/// A trace in memory.
struct Memory(TraceMeta, Vec<Batch>);

impl TraceReader for Memory {
    fn meta(&self) -> &TraceMeta {
        &self.0
    }

    fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        *batch = Batch::default();
        let Some(mut next) = self.1.pop() else { return Ok(false) };
        batch.append(&mut next);
        Ok(true)
    }
}

/// The page of a trace of two layers through these caches, with the replay itself.
fn page(specs: &[RunSpec], curve: bool, transfers: Option<TransferModel>) -> (String, Replay) {
    let trace = meta(&[(16, 2, 1 << 20), (16, 2, 1 << 20)], RouterValues::None);
    let mut memory = Memory(trace.clone(), vec![tokens(&trace, 200, 100, 8, 1)]);
    let options = ReplayOptions { warmup: 20, curve, ..ReplayOptions::new(1) };
    let replay = replay(&mut memory, specs, options, transfers, Interrupt::NEVER, &mut |_| {});
    let replay = replay.unwrap().unwrap();
    let file = "</script><b>.arrow";
    let html = ReplayPage { replay: &replay, trace: &trace, file, transfers, command: &[] }.render();
    (html, replay)
}

fn specs(policies: &[PolicyKind], capacities: &[Capacity]) -> Vec<RunSpec> {
    let mut all = Vec::new();
    for policy in policies {
        all.extend(capacities.iter().map(|capacity| RunSpec::plain(*policy, *capacity)));
    }
    all
}

#[test]
fn page_embeds_the_replay_and_runs_nothing_but_its_script() {
    let specs = specs(&[PolicyKind::Lru, PolicyKind::Belady], &[Capacity::Experts(4), Capacity::Experts(8)]);
    let (html, replay) = page(&specs, true, None);
    check_policy(&html, scripts::REPLAY);
    let found = data(&html);
    assert_eq!(found["replay"], serde_json::to_value(&replay).unwrap());
    assert_eq!(found["charts"][0]["series"][1]["label"], "belady");
    assert!(markup(&html).contains("&lt;/script&gt;&lt;b&gt;.arrow"));
}

#[test]
fn page_answers_with_the_cache_that_misses_least_and_its_bound() {
    let policies = [PolicyKind::Random, PolicyKind::Lfu, PolicyKind::Belady];
    let (html, replay) = page(&specs(&policies, &[Capacity::Experts(4), Capacity::Experts(8)]), false, None);
    let of = |policy: &str| {
        let row = replay.rows.iter().find(|row| row.policy == policy && row.capacity == Some(8)).unwrap();
        crate::report::wording::percent_up(1.0 - row.all.hit_rate)
    };
    assert!(of("lfu") != of("random") && of("lfu") != of("belady"));
    let claim = format!("With room for 8 experts a layer, lfu misses {} of the accesses", of("lfu"));
    assert!(html.contains(&claim), "{}", markup(&html));
    assert!(html.contains(&format!("misses {} at this size", of("belady"))), "{}", markup(&html));
}

#[test]
fn optimum_of_the_plain_routing_is_not_called_the_bound_of_another() {
    let policies = [PolicyKind::Lru, PolicyKind::Belady];
    let mut specs = specs(&policies, &[Capacity::Experts(4)]);
    let (html, _) = page(&specs, false, None);
    assert!(html.contains("The optimum, which knows") && !html.contains("Without that"), "{}", markup(&html));
    specs[0].prefetch = Some(PrefetchPlan { place: PrefetchPlace::Tail, experts: 2 });
    let (html, _) = page(&specs, false, None);
    assert!(html.contains("Without that, the optimum, which knows what comes"), "{}", markup(&html));
    assert!(!html.contains("The optimum, which"), "{}", markup(&html));
    // A policy that may leave a miss out has another optimum.
    let slru = |bound| [PolicyKind::Slru, bound].map(|kind| RunSpec::plain(kind, Capacity::Experts(4)));
    let (html, _) = page(&slru(PolicyKind::Belady), false, None);
    assert!(!html.contains("optimum, which knows"), "{}", markup(&html));
    let (html, _) = page(&slru(PolicyKind::BeladyBypass), false, None);
    assert!(html.contains("The optimum, which knows"), "{}", markup(&html));
}

#[test]
fn page_has_a_table_of_each_part_for_each_kind_of_room() {
    let specs = specs(&[PolicyKind::Lru], &[Capacity::Experts(4), Capacity::Bytes(12 << 20)]);
    let (html, _) = page(&specs, false, None);
    let parts = [
        "The whole trace as a table",
        "Prefill as a table",
        "Decode as a table",
        "After the warm-up as a table",
    ];
    for part in parts {
        assert_eq!(html.matches(part).count(), 2, "{part}");
    }
    assert_eq!(data(&html)["charts"].as_array().unwrap().len(), 2);
}

#[test]
fn speeds_are_claimed_only_with_the_model_that_they_rest_on() {
    let specs = specs(&[PolicyKind::Lru], &[Capacity::Experts(4)]);
    let (html, _) = page(&specs, false, None);
    assert!(
        html.contains("the page claims no speeds") && !markup(&html).contains("tokens/s"),
        "{}",
        markup(&html)
    );
    let (html, _) = page(&specs, false, Some(TransferModel { bandwidth: 25e9, latency: 1e-5 }));
    assert!(html.contains("modelled, not measured") && html.contains("10.0 µs"), "{}", markup(&html));
    assert_eq!(data(&html)["transfers"]["bytes_per_second"], 25e9);
}

#[test]
fn page_of_the_curve_alone_answers_by_it() {
    let (html, _) = page(&[], true, None);
    assert!(html.contains("lru misses less than half") || html.contains("At no size"), "{}", markup(&html));
    assert!(html.contains("lru at every size as a table"));
}
