//! The JSON Schemas in `docs/`, generated from the types of the files.
//!
//! `UPDATE_SCHEMAS=1 cargo test schemas` writes them.

use crate::evaluate::Evaluation;
use crate::moe::KeptExperts;
use crate::plan::Plan;
use crate::score::{Blend, Score};
use crate::usage::Usage;
use schemars::{JsonSchema, generate::SchemaSettings};
use std::path::Path;

/// What `--plan` takes.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the type serves its schema alone")]
enum PlanFile {
    /// A plan of moeslice.
    Plan(Box<Plan>),
    /// A bare map: the kept ids of each layer with experts, by layer.
    Bare(KeptExperts),
}

/// Compares the schema of `T` with the file, or writes it.
fn check<T: JsonSchema>(title: &str, name: &str) {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).expect("docs/ can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "docs/{name} does not describe the types; run UPDATE_SCHEMAS=1 cargo test schemas"
    );
}

/// The JSON of the examples in `docs/usage-json.md`, in order.
fn examples() -> Vec<&'static str> {
    let text = include_str!("../docs/usage-json.md");
    let blocks = text.split("```json\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("split gives at least one part")).collect()
}

#[test]
fn examples_of_the_documentation_are_accepted() {
    let path = Path::new("docs/usage-json.md");
    let [usage, plan, bare] = examples().try_into().expect("three examples");
    let usage = Usage::parse(usage.as_bytes(), path).expect("a usage");
    let plan = Plan::parse(plan.as_bytes(), path).expect("a plan");
    let bare = Plan::parse(bare.as_bytes(), path).expect("a bare map");
    assert_eq!(plan.keep, bare.keep);
    // The plan is the one that the usage gives.
    let scores = crate::score::scores(&usage, Score::Frequency, &Blend::Tokens).expect("scores");
    for (layer, ids) in plan.keep.iter() {
        let mut top = scores[&layer].ranking()[..plan.k as usize].to_vec();
        top.sort_unstable();
        assert_eq!(*ids, top, "layer {layer}");
    }
    let source = plan.source.expect("a source");
    assert_eq!((source.fingerprint, source.router_hash), (usage.model.fingerprint, usage.model.router_hash));
    assert_eq!(plan.corpora[1].sha256, usage.corpora[1].sha256());
}

#[test]
fn usage_schema_matches_the_types() {
    check::<Usage>("Usage file of moeslice", "usage.schema.json");
}

#[test]
fn eval_schema_matches_the_types() {
    check::<Evaluation>("Measurement of moeslice", "eval.schema.json");
}

#[test]
fn plan_schema_matches_the_types() {
    check::<PlanFile>("Plan of moeslice", "plan.schema.json");
}
