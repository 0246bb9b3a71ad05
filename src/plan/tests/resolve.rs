use super::*;
use crate::moe::Identity;
use crate::score::{Blend, Score};
use crate::usage::{Usage, test_usage};
use proptest::prelude::*;
use std::cell::RefCell;
use std::path::Path;

fn no_size(_: u32) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    panic!("only size: asks for sizes")
}

/// Two layers of four experts, one selected for a token; corpora that want opposite ones in layer 1.
fn usage() -> Usage {
    test_usage::usage(
        1,
        &[("dev", 100), ("pm", 10)],
        &[
            (0, &[(&[90, 8, 1, 1], None), (&[4, 3, 2, 1], None)]),
            (1, &[(&[97, 1, 1, 1], None), (&[0, 0, 1, 9], None)]),
        ],
    )
}

fn planner<'a>(usage: &'a Usage, experts: &'a Experts) -> Planner<'a> {
    // The planner of a test outlives this function, as its settings must.
    let (blend, pins) = (Box::leak(Box::new(Blend::Tokens)), Box::leak(Box::new(Pins::default())));
    Planner::new(usage, experts, Score::Frequency, blend, pins).unwrap()
}

#[test]
fn coverage_is_that_of_the_worst_layer() {
    let (usage, model) = (usage(), experts("qwen3moe", 1, &[(0, 4), (1, 4)]));
    let planner = planner(&usage, &model);
    let keep = planner.choose(2).unwrap().keep;
    assert_eq!(keep, [(0, vec![0, 1]), (1, vec![0, 3])].into());
    let found = planner.coverage(&keep);
    let expect = |a: f64, b: f64, worst_layer| Coverage { mean: (a + b) / 2.0, worst: a.min(b), worst_layer };
    assert_eq!(found.all, expect(105.0 / 110.0, 107.0 / 110.0, 0));
    assert_eq!(found.corpora["dev"], expect(98.0 / 100.0, 98.0 / 100.0, 0));
    assert_eq!(found.corpora["pm"], expect(7.0 / 10.0, 9.0 / 10.0, 0));
}

#[test]
fn corpus_without_tokens_never_limits_coverage() {
    let usage = test_usage::usage(1, &[("a", 3), ("b", 0)], &[(0, &[(&[2, 1], None), (&[0, 0], None)])]);
    let model = experts("qwen3moe", 1, &[(0, 2)]);
    let found = planner(&usage, &model).coverage(&[(0, vec![0])].into());
    assert_eq!(found.corpora.keys().collect::<Vec<_>>(), ["a"]);
    assert!(found.reach(2.0 / 3.0, true) && !found.reach(0.7, true));
}

#[test]
fn coverage_target_gives_the_smallest_k() {
    let (usage, model) = (usage(), experts("qwen3moe", 1, &[(0, 4), (1, 4)]));
    let planner = planner(&usage, &model);
    let k = |text: &str| planner.resolve(&text.parse().unwrap(), &no_size).unwrap();
    assert_eq!(k("coverage:0.85"), 1); // 94/110 and 97/110
    assert_eq!(k("coverage:0.86"), 2);
    assert_eq!(k("coverage:0.7@each"), 2); // exactly 7/10
    assert_eq!(k("coverage:0.71@each"), 3);
    assert_eq!(k("coverage:1"), 4);
}

#[test]
fn decimal_share_met_exactly_is_met() {
    for (hits, all) in [(98u64, 100u64), (7, 10), (29, 100), (57, 100), (981, 1000), (333, 1000)] {
        let usage = test_usage::usage(1, &[("a", all)], &[(0, &[(&[hits, all - hits, 0], None)])]);
        let model = experts("qwen3moe", 1, &[(0, 3)]);
        let share = format!("coverage:{}", hits as f64 / all as f64);
        let wanted = if hits * 2 >= all { 1 } else { 2 };
        let planner = planner(&usage, &model);
        let k = planner.resolve(&share.parse().unwrap(), &no_size).unwrap();
        assert!(k == wanted || hits * 2 < all && k == 1, "{share}: {k}");
    }
}

#[test]
fn pins_raise_the_smallest_k_of_coverage() {
    let (usage, model) = (usage(), experts("qwen3moe", 1, &[(0, 4), (1, 4)]));
    let pins = "0:2,0:3".parse().unwrap();
    let planner = Planner::new(&usage, &model, Score::Frequency, &Blend::Tokens, &pins).unwrap();
    // With two of three places pinned, layer 0 covers (94 + 3 + 2)/110.
    assert_eq!(planner.resolve(&"coverage:0.9".parse().unwrap(), &no_size).unwrap(), 3);
    assert_eq!(planner.resolve(&"coverage:0.01".parse().unwrap(), &no_size).unwrap(), 2);
}

#[test]
fn size_target_gives_the_largest_k_that_fits() {
    let (usage, model) = (usage(), experts("qwen3moe", 2, &[(0, 4), (1, 4)]));
    let planner = planner(&usage, &model);
    let size = |k: u32| Ok(100 + 10 * u64::from(k));
    let k = |limit| planner.resolve(&KeepTarget::Size(limit), &size);
    assert_eq!(k(120).unwrap(), 2);
    assert_eq!(k(129).unwrap(), 2);
    assert_eq!(k(130).unwrap(), 3);
    assert_eq!(k(140).unwrap(), 4);
    assert_eq!(k(u64::MAX).unwrap(), 4);
    let error = k(119).unwrap_err();
    assert!(matches!(error, PlanError::TooSmall { limit: 119, k: 2, bytes: 120 }), "{error}");
    let broken =
        planner.resolve(&KeepTarget::Size(1), &|_| Err("no such file".into())).unwrap_err().to_string();
    assert!(broken.contains("no such file"), "{broken}");
}

#[test]
fn size_target_tries_few_and_only_possible_counts() {
    let model = grouped(experts("deepseek2", 8, &[(0, 256)]), 8, 4);
    let asked = RefCell::new(vec![]);
    let size = |k: u32| {
        asked.borrow_mut().push(k);
        Ok(u64::from(k))
    };
    assert_eq!(largest_fitting(&model, 199, &size).unwrap(), 192);
    let asked = asked.into_inner();
    assert!(asked.len() <= 6, "{asked:?}");
    assert!(asked.iter().all(|&k| model.check_count(k).is_ok()), "{asked:?}");
}

#[test]
fn usage_layer_without_tokens_is_refused_as_never_reached() {
    let usage = test_usage::usage(1, &[("a", 3)], &[(0, &[(&[2, 1], None)]), (1, &[(&[0, 0], None)])]);
    let model = experts("qwen3moe", 1, &[(0, 2), (1, 2)]);
    let error = planner(&usage, &model).choose(1).unwrap_err();
    assert!(matches!(error, PlanError::NeverReached { layer: 1 }), "{error}");
}

#[test]
fn plan_says_what_is_kept_and_why() {
    let (usage, model) = (usage(), experts("qwen3moe", 1, &[(0, 4), (1, 4)]));
    let identity = Identity {
        architecture: "qwen3moe".into(),
        fingerprint: "sha256:f".into(),
        router_hash: "sha256:r".into(),
        router_sketch: None,
        n_layer: 2,
        n_expert: 4,
        n_expert_used: 1,
        expert_layers: vec![0, 1],
    };
    let (blend, pins) = ("dev=1,pm=1".parse().unwrap(), "0:3".parse().unwrap());
    let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
    let source = PlanSource::new(Path::new("folder/model.gguf"), &identity);
    let plan = planner.plan(&"50%".parse().unwrap(), &no_size, source).unwrap();
    let text = r#"{
  "schema": "moeslice.plan/1",
  "source": {
    "file": "model.gguf",
    "fingerprint": "sha256:f",
    "router_hash": "sha256:r"
  },
  "score": "frequency",
  "blend": "dev=1,pm=1",
  "always_keep": "0:3",
  "target": "50%",
  "k": 2,
  "ties": {
    "layers": 0,
    "experts": 0,
    "by_id": 0
  },
  "corpora": [{
    "name": "dev",
    "tokens": 100,
    "sha256": "hash-dev"
  }, {
    "name": "pm",
    "tokens": 10,
    "sha256": "hash-pm"
  }],
  "keep": {
    "0": [0, 3],
    "1": [0, 3]
  }
}
"#;
    assert_eq!(plan.to_json(), text);
    assert_eq!(Plan::parse(text.as_bytes(), Path::new("p.json")).unwrap(), plan);
    assert_eq!(
        plan.check(&model, &identity, Path::new("p.json"), Path::new("m.gguf")).unwrap(),
        crate::usage::ModelMatch::Same
    );
}

proptest! {
    /// Whatever the counts: the number that coverage gives reaches the share and the next smaller one does not, and
    /// the kept sets grow with k.
    #[test]
    fn coverage_k_is_minimal_and_kept_sets_are_nested(
        counts in proptest::collection::vec(proptest::collection::vec(0u64..50, 12), 1..4),
        share in 0.01f64..=1.0,
        groups in prop_oneof![Just(1u32), Just(2), Just(4)],
    ) {
        prop_assume!(counts.iter().all(|layer| layer.iter().sum::<u64>() > 0));
        let columns: Vec<Vec<test_usage::Column<'_>>> =
            counts.iter().map(|layer| vec![(layer.as_slice(), None)]).collect();
        let layers: Vec<_> = columns.iter().enumerate().map(|(at, column)| (at as u32, column.as_slice())).collect();
        let usage = test_usage::usage(1, &[("a", 600)], &layers);
        let sizes: Vec<(u32, u32)> = layers.iter().map(|&(layer, _)| (layer, 12)).collect();
        let mut model = experts("deepseek2", 1, &sizes);
        if groups > 1 {
            model = grouped(model, groups, 1);
        }
        let planner = planner(&usage, &model);
        let k = planner.resolve(&KeepTarget::Coverage { share, each: false }, &no_size).unwrap();
        let worst = |k| planner.coverage(&planner.choose(k).unwrap().keep).all.worst;
        prop_assert!(worst(k) >= share);
        let possible = model.possible_counts();
        if let Some(&below) = possible.iter().rev().find(|&&below| below < k) {
            prop_assert!(worst(below) < share);
        }
        for pair in possible.windows(2) {
            let (small, large) = (planner.choose(pair[0]).unwrap().keep, planner.choose(pair[1]).unwrap().keep);
            for (layer, ids) in small.iter() {
                prop_assert!(ids.iter().all(|id| large[layer].contains(id)));
            }
        }
    }
}
