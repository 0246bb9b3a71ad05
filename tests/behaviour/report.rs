//! Reports, pages and model cards.

use crate::support::{demo, folder, json, moeslice, refuses, succeeds, write_usage};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Counts that differ, of 1000 tokens in all with four experts each.
fn counts(layer: u32, expert: u32) -> u64 {
    125 + u64::from((expert * 7 + layer * 3) % 32) * 2 - 31
}

/// A measurement of the model with these routers.
fn measurement(path: &Path, router_hash: &str) {
    let model = json!({ "file": "m.gguf", "architecture": "qwen3moe", "fingerprint": "f", "router_hash": router_hash,
        "n_layer": 4, "n_expert": 32, "n_expert_used": 4, "expert_layers": [0, 1, 2, 3] });
    let run = json!({ "moeslice": "0.1.0", "llama_cpp": "b1", "devices": ["CPU"], "ctx_size": 256, "batch_size": 256,
        "ubatch_size": 256, "wall_seconds": 1.0 });
    let corpus = json!({ "name": "held", "files": [], "windows": 1, "tokens": 256, "scored": 100 });
    let kl = json!({ "kl_mean": 0.25, "kl_err": 0.01, "kl_median": 0.2, "kl_p99": 1.0, "kl_max": 2.0, "dp_rms": 0.1,
        "dp_rms_err": 0.01, "same_top": 0.8, "same_top_err": 0.01, "ppl_base": 10.0, "ln_ppl_ratio": 0.2,
        "ln_ppl_ratio_err": 0.01 });
    let row = json!({ "k": 24, "bytes": 9, "corpora": {},
        "all": { "scored": 100, "ppl": 12.5, "ppl_err": 0.5, "kl": kl } });
    let text = json!({ "schema": "moeslice.eval/1", "model": model, "rows": [row], "corpora": [corpus], "run": run });
    fs::write(path, text.to_string()).unwrap();
}

#[test]
fn report_page_is_written_whole_and_replaces_nothing() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), counts);
    let report = |more: &[&str]| {
        let mut command = moeslice();
        command.arg("report").arg(at("u.json")).arg("--html").arg(at("r.html")).args(more);
        command
    };
    succeeds(report(&["--keep", "24"]).arg("-m").arg(demo()));
    let page = fs::read_to_string(at("r.html")).unwrap();
    for part in
        ["24 of 32 experts in each layer keep", "<dt>Size</dt>", "What stays", "not measured", "</html>\n"]
    {
        assert!(page.contains(part), "{part:?}");
    }
    refuses(&mut report(&[]), 2, &["r.html", "exists already"]);
    succeeds(&mut report(&["--force"]));
    assert!(fs::read_to_string(at("r.html")).unwrap().contains("the size needs the model at hand"));
    let mut over_input = moeslice();
    over_input.arg("report").arg(at("u.json")).arg("--html").arg(at("u.json")).arg("--force");
    refuses(&mut over_input, 2, &["an input"]);
    refuses(&mut report(&["--force", "--keep", "24"]), 2, &["--model"]);
    refuses(&mut report(&["--force", "--score", "frequency"]), 2, &["--score has no effect without --model"]);
}

#[test]
fn report_takes_a_plan_made_for_its_model() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), counts);
    let mut plan = moeslice();
    plan.arg("plan").arg(at("u.json")).arg("-m").arg(demo()).args(["--keep", "16", "-o"]).arg(at("p.json"));
    succeeds(&mut plan);
    let report = |plan: &str, page: &str| {
        let mut command = moeslice();
        command.arg("report").arg(at("u.json")).arg("--plan").arg(at(plan)).arg("--html").arg(at(page));
        command
    };
    succeeds(&mut report("p.json", "r.html"));
    assert!(fs::read_to_string(at("r.html")).unwrap().contains("16 of 32 experts in each layer keep"));
    let mut other = json(&at("p.json"));
    other["source"]["router_hash"] = "sha256:other".into();
    fs::write(at("other.json"), other.to_string()).unwrap();
    refuses(&mut report("other.json", "o.html"), 3, &["other.json", "another model"]);
    fs::write(at("far.json"), json!({ "0": [0, 1, 99] }).to_string()).unwrap();
    refuses(&mut report("far.json", "o.html"), 3, &["far.json", "layer 0", "99"]);
    assert!(!at("o.html").exists());
}

#[test]
fn measurement_of_another_model_is_refused_and_ones_own_shown() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), counts);
    let hash = json(&at("u.json"))["model"]["router_hash"].as_str().unwrap().to_owned();
    measurement(&at("ours.json"), &hash);
    measurement(&at("theirs.json"), "sha256:other");
    let report = |eval: &str, more: &[&str]| {
        let mut command = moeslice();
        command.arg("report").arg(at("u.json")).arg("--eval").arg(at(eval)).args(more);
        command
    };
    refuses(&mut report("theirs.json", &[]), 3, &["theirs.json measures another model"]);
    let text = succeeds(&mut report("ours.json", &[]));
    assert!(text.contains("What was measured of the model:") && text.contains("12.5"), "{text}");
    assert_eq!(json_of(&succeeds(&mut report("ours.json", &["--json"])))["measured"]["rows"][0]["k"], 24);

    let prune = |eval: &str| {
        let mut command = moeslice();
        command
            .arg("prune")
            .arg("-m")
            .arg(demo())
            .arg("--usage")
            .arg(at("u.json"))
            .args(["--keep", "24", "--card"]);
        command.arg("--eval").arg(at(eval)).arg("-o").arg(at("cut.gguf"));
        command
    };
    refuses(&mut prune("theirs.json"), 3, &["another model"]);
    assert!(!at("cut.gguf").exists());
    succeeds(&mut prune("ours.json"));
    let card = fs::read_to_string(at("README.md")).unwrap();
    assert!(card.contains("| all together | 10.0 | 12.5 ± 0.50 | 0.25 ± 0.01 |"), "{card}");
}

fn json_of(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn card_claims_only_what_is_known() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), counts);
    let prune = || {
        let mut command = moeslice();
        command
            .arg("prune")
            .arg("-m")
            .arg(demo())
            .arg("--usage")
            .arg(at("u.json"))
            .args(["--keep", "24", "--card"]);
        command.arg("-o").arg(at("cut.gguf"));
        command
    };
    succeeds(&mut prune());
    let card = fs::read_to_string(at("README.md")).unwrap();
    let front = card.split("---\n").nth(1).unwrap();
    for line in
        ["license: \"cc0-1.0\"", "library_name: gguf", "quantized_type: \"Q8_0\"", "- mixture-of-experts"]
    {
        assert!(front.lines().any(|found| found == line), "{line} in {front}");
    }
    assert!(!front.contains("base_model"), "the file names no repository of its own: {front}");
    for part in [
        "24 of 32 experts",
        "Not measured.",
        "moeslice prune -m moeslice-demo-Q8_0.gguf",
        "compared with its source",
    ] {
        assert!(card.contains(part), "{part:?} in {card}");
    }
    assert!(!card.contains(folder.path().to_str().unwrap()), "{card}");
    // A card that is there already is not replaced, and nothing is cut.
    fs::remove_file(at("cut.gguf")).unwrap();
    refuses(&mut prune(), 2, &["README.md", "exists already"]);
    assert!(!at("cut.gguf").exists());
}

#[test]
fn colours_come_only_where_they_are_wanted() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    write_usage(&at("u.json"), &demo(), counts);
    let report = |more: &[&str]| {
        let mut command = moeslice();
        command.arg("report").arg(at("u.json")).args(more);
        succeeds(&mut command)
    };
    let plain = report(&[]);
    assert!(!plain.contains('\u{1b}') && plain.lines().all(|line| line.chars().count() <= 80));
    assert_eq!(report(&["--color", "never"]), plain);
    let coloured = report(&["--color", "always"]);
    assert!(coloured.contains("\u{1b}[1m"));
    let without: String = coloured.replace("\u{1b}[1m", "").replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
    assert_eq!(without, plain);
}
