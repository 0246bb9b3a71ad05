//! Files that moeslice 0.1.0 wrote, which every later one reads.

use std::path::{Path, PathBuf};

use moeslice::moe::MoeModel;
use moeslice::plan::{KeepTarget, Pins, Plan, PlanSource, Planner};
use moeslice::score::{Blend, Score};
use moeslice::usage::{ModelMatch, Usage};

pub fn at(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

const USAGE: &str = "tests/golden/usage-0.1.0.json";
const PLAN: &str = "tests/golden/plan-0.1.0.json";
const MODEL: &str = "models/moeslice-demo-Q8_0.gguf";

#[test]
fn a_usage_of_0_1_0_is_read_and_written_back_the_same() {
    let text = std::fs::read_to_string(at(USAGE)).expect("the usage");
    let usage = Usage::parse(text.as_bytes(), Path::new(USAGE)).expect("a usage");
    assert_eq!(usage.run.moeslice, "0.1.0");
    assert_eq!(usage.corpora.iter().map(|corpus| corpus.tokens).collect::<Vec<_>>(), [1024, 1024]);
    assert_eq!(usage.to_json(), text);
}

#[test]
fn a_plan_of_0_1_0_is_the_one_that_its_usage_gives() {
    let text = std::fs::read_to_string(at(PLAN)).expect("the plan");
    let planned = Plan::parse(text.as_bytes(), Path::new(PLAN)).expect("a plan");
    let model = MoeModel::open(&at(MODEL)).expect("the model");
    let usage = Usage::read(&at(USAGE)).expect("the usage");
    let (usage_path, model_path) = (Path::new(USAGE), Path::new(MODEL));
    assert_eq!(
        usage.model_match(&model.identity, usage_path, model_path).expect("its model"),
        ModelMatch::Same
    );
    let found = planned.check(&model.experts, &model.identity, Path::new(PLAN), model_path);
    assert_eq!(found.expect("fits"), ModelMatch::Same);

    let (blend, pins) = (Blend::Tokens, Pins::default());
    let planner = Planner::new(&usage, model.chosen(), Score::Frequency, &blend, &pins).expect("scores");
    let source = PlanSource::new(model.path(), &model.identity);
    let again = planner.plan(&KeepTarget::Count(16), &|_| Ok(0), source).expect("a plan");
    assert_eq!(again, planned);
    assert_eq!(again.to_json(), text);
}

#[test]
fn a_field_of_a_later_moeslice_is_refused_with_the_version_that_is_needed() {
    let text = std::fs::read_to_string(at(USAGE)).expect("the usage");
    let later = |version: &str| {
        let text = text.replace("\"moeslice\": \"0.1.0\"", &format!("\"moeslice\": \"{version}\""));
        let with_field = text.replace("\"ctx_size\"", "\"stride\": 256, \"ctx_size\"");
        (
            Usage::parse(text.as_bytes(), Path::new(USAGE)),
            Usage::parse(with_field.as_bytes(), Path::new(USAGE)),
        )
    };
    let (without, with) = later("999.2.1");
    assert_eq!(without.expect("nothing in it is new").run.moeslice, "999.2.1");
    let message = with.expect_err("an unknown field").to_string();
    assert!(message.contains("moeslice 999.2.1") && message.contains("`stride`"), "{message}");
    // Of the version itself, the same field is a mistake.
    let message = later("0.1.0").1.expect_err("an unknown field").to_string();
    assert!(message.contains("not a usage file of moeslice: unknown field `stride`"), "{message}");

    let plan = std::fs::read_to_string(at(PLAN)).expect("the plan");
    let later = plan.replacen('{', "{\"run\": {\"moeslice\": \"999.2.1\"}, \"policy\": \"layers\",", 1);
    let message = Plan::parse(later.as_bytes(), Path::new(PLAN)).expect_err("unknown fields").to_string();
    assert!(message.contains("moeslice 999.2.1"), "{message}");
}
