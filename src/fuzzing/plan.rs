//! What fuzzing and property tests do with arbitrary bytes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::moe::test_experts::{experts, identity};
use crate::moe::{Experts, Groups};
use crate::plan::{Plan, PlanFileError, Planner};
use crate::score::{Blend, Score};
use crate::usage::Usage;

/// Experts of the largest layers of [`models`].
const N_EXPERT: u32 = 8;

/// Parses `bytes` as a plan and, if that succeeds, checks what must then hold: it is written and read back the same,
/// and a model that it fits keeps what the plan says, and what llama.cpp can run. Returns the plan and whether it fits
/// one of the models that it was held against.
///
/// # Panics
/// When an accepted plan breaks a promise: that is what the callers look for.
pub fn plan(bytes: &[u8]) -> Result<(Plan, bool), PlanFileError> {
    let path = Path::new("input.json");
    let plan = Plan::parse(bytes, path)?;
    let text = plan.to_json();
    let again = Plan::parse(text.as_bytes(), path).expect("what was written is accepted");
    assert_eq!(again, plan, "and says the same");
    assert_eq!(again.to_json(), text);
    let fitting = models()
        .iter()
        .filter(|experts| plan.check(experts, &identity(experts), path, Path::new("m.gguf")).is_ok())
        .inspect(|experts| check_fit(&plan, experts))
        .count();
    Ok((plan, fitting > 0))
}

fn check_fit(plan: &Plan, experts: &Experts) {
    experts.check_count(plan.k).expect("the model can keep so many");
    assert!(
        plan.keep.iter().map(|(layer, _)| layer).eq(experts.layers.iter().map(|layer| layer.layer)),
        "every layer"
    );
    for layer in &experts.layers {
        let ids = plan.keep.layer(layer.layer).expect("every layer");
        assert_eq!(ids.len(), layer.kept(plan.k) as usize, "layer {}", layer.layer);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no expert twice");
        assert!(ids.iter().all(|&id| id < layer.n_expert), "no expert that there is not");
        if let Some(groups) = experts.groups.filter(|_| ids.len() < layer.n_expert as usize) {
            let (size, wanted) = (layer.n_expert / groups.count, (plan.k / groups.count) as usize);
            let kept = |group| ids.iter().filter(|&&id| id / size == group).count();
            assert!((0..groups.count).all(|group| kept(group) == wanted), "{ids:?}");
        }
    }
}

/// Plans a model that has just the layers that `usage` counts, for every number of experts, by every score.
///
/// # Panics
/// When a plan that is made does not fit that model.
pub fn every_cut(usage: &Usage) {
    let layers = usage.layers.iter().map(|layer| {
        // A list in memory has fewer than 2^32 entries here: it was text of a file.
        (layer.layer, layer.total.count.len() as u32, layer.n_expert_used)
    });
    let layers: Vec<(u32, u32, u32)> = layers.collect();
    let experts = experts("qwen3moe", &layers, None);
    for score in Score::ALL {
        let (blend, pins) = (Blend::Tokens, crate::plan::Pins::default());
        let Ok(planner) = Planner::new(usage, &experts, score, &blend, &pins) else { continue };
        for k in experts.possible_counts() {
            let Ok(choice) = planner.choose(k) else { continue };
            let kept = choice.keep.check(&experts).expect("what was chosen fits");
            assert_eq!(kept, k);
            let all = planner.coverage(&choice.keep).all;
            assert!(0.0 <= all.worst && all.worst <= all.mean + 1e-9 && all.mean <= 1.0 + 1e-9, "{all:?}");
        }
    }
}

/// A plain model, one with groups, and one with a smaller layer.
fn models() -> [Experts; 3] {
    let n = N_EXPERT;
    [
        experts("qwen3moe", &[(0, n, 2), (1, n, 2)], None),
        experts("deepseek2", &[(1, n, 2)], Some(Groups { count: 2, used: 1 })),
        experts("nemotron_h_moe", &[(0, n, 2), (3, n / 2, 2), (4, n, 2)], None),
    ]
}
