use super::*;
use crate::json::DocumentError;
use crate::moe::{Identity, KeptError, KeptExperts};
use crate::usage::ModelMatch;
use std::path::Path;

const PLAN: &str = "plan.json";

fn identity() -> Identity {
    test_experts::identity(&model())
}

fn model() -> Experts {
    experts("qwen3moe", 2, &[(1, 8), (2, 8), (4, 8)])
}

fn read(text: &str) -> Result<Plan, PlanFileError> {
    Plan::parse(text.as_bytes(), Path::new(PLAN))
}

fn check(plan: &Plan, experts: &Experts) -> Result<ModelMatch, PlanFileError> {
    plan.check(experts, &identity(), Path::new(PLAN), Path::new("m.gguf"))
}

/// The fault of a bare map.
fn fault(text: &str, experts: &Experts) -> KeptError {
    match check(&read(text).unwrap(), experts).unwrap_err() {
        PlanFileError::Fault { fault: PlanFault::Kept(error), .. } => error,
        other => panic!("{other}"),
    }
}

#[test]
fn bare_map_in_any_order_is_a_plan() {
    let plan = read(r#"{"4": [0, 1, 2], "1": [7, 0, 3], "2": [5, 6, 7]}"#).unwrap();
    assert_eq!(plan.keep[1], [0, 3, 7]);
    assert_eq!(plan.k, 3);
    assert_eq!(check(&plan, &model()).unwrap(), ModelMatch::Same);
    // What was read without provenance is written without.
    assert_eq!(read(&plan.to_json()).unwrap(), plan);
}

#[test]
fn each_fault_is_refused_with_layer_and_value() {
    let model = model();
    let refused = |text| fault(text, &model);
    assert_eq!(refused(r#"{"1": [0,1,2], "4": [0,1,2]}"#), KeptError::MissingLayer { layer: 2, n_expert: 8 });
    assert_eq!(
        refused(r#"{"1": [0,1,2], "2": [0,1,2], "3": [0,1,2], "4": [0,1,2]}"#),
        KeptError::ExtraLayer { layer: 3, layers: "1, 2, 4".into() }
    );
    assert_eq!(
        refused(r#"{"1": [0,1,2], "2": [0,5,0], "4": [0,1,2]}"#),
        KeptError::Twice { layer: 2, id: 0 }
    );
    assert_eq!(
        refused(r#"{"1": [0,1,2], "2": [0,1,8], "4": [0,1,2]}"#),
        KeptError::Id { layer: 2, id: 8, n_expert: 8 }
    );
    assert_eq!(
        refused(r#"{"1": [0,1,2], "2": [0,1,2], "4": [0,1]}"#),
        KeptError::Uneven { layer: 4, kept: 2, wanted: 3, other: 1 }
    );
    // The odd one out is named, not those that agree.
    assert_eq!(
        refused(r#"{"1": [0,1,2,3], "2": [0,1,2], "4": [0,1,2]}"#),
        KeptError::Uneven { layer: 1, kept: 4, wanted: 3, other: 2 }
    );
    assert!(matches!(refused(r#"{"1": [0], "2": [1], "4": [2]}"#), KeptError::Count(_)));
    assert!(matches!(refused(r#"{"1": [], "2": [], "4": []}"#), KeptError::Count(_)));
    assert_eq!(refused("{}"), KeptError::MissingLayer { layer: 1, n_expert: 8 });
}

#[test]
fn file_that_is_not_a_plan_is_refused_when_read() {
    for (text, part) in [
        (r#"{"1": [0], "1": [1]}"#, "\"1\" occurs twice"),
        (r#"{"1": [0], "01": [1]}"#, "\"01\" is not a key"),
        (r#"{"1": [0], "note": "mine"}"#, "\"note\" is not a key"),
        (r#"{"-1": [0]}"#, "\"-1\" is not a key"),
        (r#"{"1": [0, -1]}"#, "layer 1: -1 is not an expert id"),
        (r#"{"1": [0, 1.5]}"#, "layer 1: 1.5 is not an expert id"),
        (r#"{"1": [0, 4294967296]}"#, "layer 1: 4294967296 is not an expert id"),
        (r#"{"1": [0, "7"]}"#, "layer 1: \"7\" is not an expert id"),
        (r#"{"1": 5}"#, "expected a sequence"),
        (r#"{"1": [0]"#, "EOF"),
        ("[[0, 1]]", "invalid type"),
        ("", "EOF"),
    ] {
        let error = read(text).unwrap_err();
        assert!(matches!(error, PlanFileError::Document(DocumentError::Parse { .. })), "{text}: {error}");
        let message = error.to_string();
        assert!(message.starts_with(PLAN) && message.contains(part), "{text}: {message}");
    }
}

fn whole() -> Plan {
    let mut plan = Plan::bare([(1, vec![0, 1]), (2, vec![2, 3]), (4, vec![6, 7])].into());
    plan.source = Some(PlanSource::new(Path::new("base.gguf"), &identity()));
    plan
}

#[test]
fn extra_or_missing_fields_and_other_versions_are_refused() {
    let edit = |edit: fn(&mut serde_json::Value)| {
        let mut value = serde_json::to_value(whole()).unwrap();
        edit(&mut value);
        read(&value.to_string()).unwrap_err().to_string()
    };
    assert!(edit(|plan| plan["note"] = 1.into()).contains("unknown field `note`"));
    assert!(edit(|plan| plan["source"]["sha"] = 1.into()).contains("unknown field `sha`"));
    assert!(edit(|plan| drop(plan.as_object_mut().unwrap().remove("keep"))).contains("missing field `keep`"));
    assert!(edit(|plan| drop(plan.as_object_mut().unwrap().remove("k"))).contains("missing field `k`"));
    assert!(edit(|plan| plan["keep"]["x"] = serde_json::json!([1])).contains("\"x\" is not a key"));
    let message = edit(|plan| plan["schema"] = "moeslice.plan/2".into());
    assert!(message.contains("\"moeslice.plan/2\"") && message.contains(PLAN_SCHEMA), "{message}");
}

#[test]
fn stated_k_other_than_that_of_the_lists_is_refused() {
    let mut plan = whole();
    plan.k = 3;
    let error = check(&plan, &model()).unwrap_err();
    let wanted = PlanFault::Count { stated: 3, kept: 2 };
    assert!(matches!(&error, PlanFileError::Fault { fault, .. } if *fault == wanted), "{error}");
}

#[test]
fn plan_for_another_model_is_refused_and_quantisation_remarked() {
    let mut plan = whole();
    assert_eq!(check(&plan, &model()).unwrap(), ModelMatch::Same);
    plan.source.as_mut().unwrap().fingerprint = "sha256:q4".into();
    assert_eq!(check(&plan, &model()).unwrap(), ModelMatch::SameRouters);
    plan.source.as_mut().unwrap().router_hash = "sha256:other".into();
    let error = check(&plan, &model()).unwrap_err();
    assert!(matches!(&error, PlanFileError::OtherModel { planned, .. } if planned == "base.gguf"), "{error}");
}

#[test]
fn groups_of_unequal_counts_are_refused() {
    let model = grouped(experts("deepseek2", 2, &[(0, 8)]), 2, 1);
    assert_eq!(KeptExperts::from([(0, vec![0, 3, 4, 7])]).check(&model), Ok(4));
    assert_eq!(
        KeptExperts::from([(0, vec![0, 1, 3, 7])]).check(&model),
        Err(KeptError::UnevenGroups { layer: 0, group: 0, kept: 3, wanted: 2 })
    );
    assert_eq!(KeptExperts::from([(0, (0..8).collect())]).check(&model), Ok(8));
}

#[test]
fn layer_with_fewer_experts_stays_whole() {
    let model = experts("nemotron_h_moe", 1, &[(1, 8), (3, 4)]);
    let lists = |first: u32, second: u32| {
        KeptExperts::from([(1, (0..first).collect()), (3, (0..second).collect())]).check(&model)
    };
    assert_eq!(lists(6, 4), Ok(6));
    assert_eq!(lists(3, 3), Ok(3));
    assert_eq!(lists(6, 3), Err(KeptError::SmallLayer { layer: 3, kept: 3, n_expert: 4, k: 6, other: 1 }));
    assert_eq!(lists(3, 4), Err(KeptError::Uneven { layer: 3, kept: 4, wanted: 3, other: 1 }));
}
