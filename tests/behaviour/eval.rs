//! What a cut costs: perplexity, divergence, what-if, bounds, refined plans.

use crate::support::{demo, folder, json, moeslice, refuses, repository, succeeds, variant};
use serde_json::Value;
use std::fs;
use std::path::Path;

const SETTINGS: [&str; 6] = ["-dev", "none", "-t", "1", "-c", "128"];

fn dev() -> std::path::PathBuf {
    repository("corpora/dev")
}

fn eval(model: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command.arg("eval").args(SETTINGS).arg("-m").arg(model);
    command
}

/// A full profile of some of the texts, every fourth window left out.
fn profile(usage: &Path) {
    let mut command = moeslice();
    command.arg("profile").args(SETTINGS).arg("-m").arg(demo()).arg("-f").arg(dev());
    command.args(["--chunks", "24", "--score-data", "full", "--holdout", "25%", "-o"]).arg(usage);
    succeeds(&mut command);
}

fn evaluation(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&succeeds(command.arg("--json"))).expect("JSON")
}

fn ppl(row: &Value) -> f64 {
    row["all"]["ppl"].as_f64().unwrap()
}

fn kl(row: &Value) -> f64 {
    row["all"]["kl"]["kl_mean"].as_f64().unwrap()
}

#[test]
fn rows_of_a_sweep_equal_the_files_that_prune_writes() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    profile(&at("u.json"));
    // Not profiled, so no window of it was left out: the files see the same ones.
    let unseen = repository("corpora/dev-heldout").display().to_string();
    let texts = ["-f", &unseen, "--chunks", "16"];
    let mut sweep = eval(&demo());
    sweep.args(texts).arg("--usage").arg(at("u.json"));
    // Numbers that fill the registers of a processor, and one that does not.
    let found = evaluation(sweep.args(["--keep", "24,16,13", "--score", "reap,weight"]));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    assert_eq!((rows[0]["k"].as_u64(), rows[0]["all"]["kl"].as_object()), (Some(32), None));
    for row in &rows[1..] {
        let (k, score) = (row["k"].to_string(), row["score"].as_str().unwrap());
        let mut prune = moeslice();
        prune.arg("prune").arg("-m").arg(demo()).arg("--usage").arg(at("u.json"));
        prune.args(["--keep", &k, "--score", score, "--force", "-o"]).arg(at("cut.gguf"));
        succeeds(&mut prune);
        let bytes = fs::metadata(at("cut.gguf")).unwrap().len();
        assert_eq!(row["bytes"].as_u64(), Some(bytes));
        let file = evaluation(eval(&at("cut.gguf")).args(texts));
        assert_eq!(file["rows"][0]["k"], row["k"]);
        assert!((ppl(&file["rows"][0]) / ppl(row) - 1.0).abs() < 1e-4, "{row}\n{file}");
    }
    assert_eq!(found["corpora"][0]["seen"], "unseen");
    assert!(kl(&rows[6]) > kl(&rows[1]), "fewer experts cost more");
}

#[test]
fn a_masked_model_and_its_file_have_the_same_perplexity() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    profile(&at("u.json"));
    let mut plan = moeslice();
    plan.arg("plan").arg(at("u.json")).arg("-m").arg(demo()).args(["--keep", "16", "-o"]).arg(at("p.json"));
    succeeds(&mut plan);
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--plan").arg(at("p.json")).arg("-o").arg(at("cut.gguf"));
    succeeds(&mut prune);
    let exact = ["--chunks", "12"];
    let mut masked = eval(&demo());
    let masked = evaluation(masked.arg("-f").arg(dev()).arg("--plan").arg(at("p.json")).args(exact));
    let mut file = eval(&at("cut.gguf"));
    let file = evaluation(file.arg("-f").arg(dev()).arg("--base").arg(demo()).args(exact));
    let (mask, file) = (&masked["rows"][1], &file["rows"][0]);
    assert!((ppl(mask) / ppl(file) - 1.0).abs() < 1e-4, "{mask}\n{file}");
    assert!((kl(mask) / kl(file) - 1.0).abs() < 1e-4, "{mask}\n{file}");
    assert_eq!(masked["rows"][0]["all"]["ppl"], file["all"]["kl"]["ppl_base"]);
}

#[test]
fn a_model_does_not_differ_from_itself() {
    let found = evaluation(eval(&demo()).arg("-f").arg(dev()).args(["--chunks", "3", "--base"]).arg(demo()));
    let all = &found["rows"][0]["all"];
    assert_eq!((all["kl"]["kl_mean"].as_f64(), all["kl"]["kl_max"].as_f64()), (Some(0.0), Some(0.0)));
    assert_eq!(all["kl"]["same_top"].as_f64(), Some(1.0));
    assert_eq!(found["schema"], "moeslice.eval/1");
}

#[test]
fn noise_is_shown_and_is_little_beside_a_cut() {
    let folder = folder();
    let usage = folder.path().join("u.json");
    profile(&usage);
    let mut command = eval(&demo());
    command.arg("-f").arg(dev()).args(["--chunks", "4", "--noise", "32", "--keep", "16", "--usage"]);
    let found = evaluation(command.arg(&usage));
    assert_eq!(found["noise"]["against"], "in ubatches of 32 tokens");
    let noise = kl(&found["noise"]);
    assert!(noise > 0.0 && noise * 10.0 < kl(&found["rows"][1]), "{found}");
}

#[test]
fn a_bound_on_the_divergence_holds_for_the_written_file() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let mut run = moeslice();
    run.arg("run").args(SETTINGS).arg("-m").arg(demo()).arg("-f").arg(dev());
    run.args(["--chunks", "24", "--holdout", "25%", "--keep", "kl:0.1", "-o"]).arg(at("cut.gguf"));
    let table = succeeds(&mut run);
    assert!(table.contains("ranked by"), "{table}");
    let usage = json(&at("cut.usage.json"));
    assert_eq!(usage["corpora"][0]["held_out"]["every"], 4);
    let k = k_of(&at("cut.gguf"));
    let mut check = eval(&demo());
    check.arg("-f").arg(dev()).arg("--usage").arg(at("cut.usage.json"));
    let found = evaluation(check.args(["--keep", &k.to_string()]));
    assert!(kl(&found["rows"][1]) <= 0.1, "{found}");
    assert!(k < 32, "something was cut");
}

#[test]
fn the_file_that_run_writes_within_a_bound_is_within_it_and_a_smaller_one_is_not() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let texts = ["--chunks", "16"];
    let mut run = moeslice();
    run.arg("run").args(SETTINGS).arg("-m").arg(demo()).arg("-f").arg(dev()).args(texts);
    succeeds(run.args(["--keep", "kl:0.08", "-o"]).arg(at("cut.gguf")));
    // Without windows that were left out, the search measures the windows that `eval` sees.
    let divergence = |file: &str| {
        let mut command = eval(&at(file));
        kl(&evaluation(command.arg("--base").arg(demo()).arg("-f").arg(dev()).args(texts))["rows"][0])
    };
    let found = divergence("cut.gguf");
    assert!(found <= 0.08, "{found}");
    let k = k_of(&at("cut.gguf"));
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--usage").arg(at("cut.usage.json")).arg("--keep");
    succeeds(prune.arg((k - 1).to_string()).arg("-o").arg(at("smaller.gguf")));
    let smaller = divergence("smaller.gguf");
    assert!(smaller > 0.08, "K = {k} is the least: {found}, one less is {smaller}");
}

fn k_of(model: &Path) -> u64 {
    json_of(moeslice().arg("inspect").arg(model))["n_expert"].as_u64().unwrap()
}

fn json_of(command: &mut assert_cmd::Command) -> Value {
    serde_json::from_str(&succeeds(command.arg("--json"))).unwrap()
}

#[test]
fn refined_plan_is_one_that_prune_takes() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    profile(&at("u.json"));
    let mut refine = moeslice();
    refine.arg("refine").args(SETTINGS).arg("-m").arg(demo()).arg("--usage").arg(at("u.json"));
    refine.arg("-f").arg(dev()).args(["--chunks", "24", "--keep", "12", "--minutes", "0.05", "-o"]);
    succeeds(refine.arg(at("p.json")));
    assert!(!at("p.json.checkpoint").exists());
    let mut prune = moeslice();
    prune.arg("prune").arg("-m").arg(demo()).arg("--plan").arg(at("p.json")).arg("-o").arg(at("cut.gguf"));
    assert!(succeeds(&mut prune).contains("32 → 12 a layer"));
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("short.txt"), "def f(x): return x").unwrap();
    profile(&at("u.json"));
    refuses(
        eval(&demo()).arg("-f").arg(at("short.txt")),
        3,
        &["short", "0 whole windows of 128", "more text"],
    );
    refuses(eval(&demo()).arg("-f").arg(dev()).args(["-c", "2"]), 3, &["windows of 2 tokens", "at least 3"]);
    let by_usage = |extra: &[&str], words: &[&str]| {
        let mut command = eval(&demo());
        command.arg("-f").arg(dev()).arg("--usage").arg(at("u.json")).args(["--keep", "16"]).args(extra);
        refuses(&mut command, 3, words);
    };
    by_usage(&["--score", "beauty"], &["beauty", "weighted-ean"]);
    by_usage(&["--blend", "dev=0.5,nobody=0.5"], &["nobody", "dev"]);
    by_usage(&["--keep", "3"], &["cannot keep 3"]);
    variant(&at("other.gguf"), |metadata, _| {
        let tokens = metadata.get("tokenizer.ggml.tokens").unwrap().as_array().unwrap();
        let mut tokens: Vec<String> =
            tokens.iter().map(|token| token.as_str().unwrap_or_default().to_owned()).collect();
        tokens[40] = "other".into();
        metadata.set("tokenizer.ggml.tokens", tokens);
    });
    let mut strangers = eval(&at("other.gguf"));
    refuses(
        strangers.arg("-f").arg(dev()).arg("--base").arg(demo()),
        3,
        &["do not belong together", "vocab"],
    );
    let mut plan = moeslice();
    plan.arg("plan").arg(at("u.json")).arg("-m").arg(demo()).args(["--keep", "kl:0.05"]);
    refuses(&mut plan, 2, &["kl:0.05", "`run`"]);
}

#[test]
fn cache_in_the_routing_is_missed_less_at_a_price() {
    let folder = folder();
    let output = folder.path().join("e.json");
    let texts = ["-f".to_owned(), dev().display().to_string(), "--chunks".into(), "4".into()];
    let cache = ["--cache-policy", "lru,belady", "--capacity", "8", "--lambda", "0,1", "--warmup", "32"];
    let table = succeeds(eval(&demo()).args(&texts).args(cache).arg("-o").arg(&output));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("policy  a layer"), "{table}");
    let rows = ["none", "lru           8      0", "lru           8      1", "belady        8      0"];
    for (line, row) in lines[1..].iter().zip(rows) {
        assert!(line.starts_with(row), "{table}");
    }
    let found: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let plain = evaluation(eval(&demo()).args(&texts));
    let ratio = ppl(&rows[0]) / ppl(&plain["rows"][0]);
    assert!((ratio - 1.0).abs() < 1e-4, "routing that is looked at is the same but for rounding: {ratio}");
    let misses = |row: &Value, side: &str| row["routing"][side]["misses"].as_u64().unwrap();
    assert_eq!((ppl(&rows[1]), misses(&rows[1], "closed")), (ppl(&rows[0]), misses(&rows[1], "open")));
    assert!(kl(&rows[2]) > 0.0 && misses(&rows[2], "closed") < misses(&rows[1], "closed") / 2);
    assert!(misses(&rows[3], "open") < misses(&rows[1], "open"), "no policy is better than the optimum");
    let requests = rows[2]["routing"]["closed"]["requests"].as_u64().unwrap();
    assert_eq!(requests, 4 * 128 * 4 * 4, "windows, tokens, layers and experts");
}

#[test]
fn cache_that_cannot_take_part_is_refused_with_what_to_do() {
    let with = |extra: &[&str], code: i32, words: &[&str]| {
        refuses(eval(&demo()).arg("-f").arg(dev()).args(["--chunks", "2"]).args(extra), code, words);
    };
    with(&["--cache-policy", "lru"], 2, &["--capacity"]);
    with(&["--capacity", "8"], 2, &["--cache-policy"]);
    with(&["--lambda", "0.1"], 2, &["--cache-policy"]);
    with(&["--cache-policy", "lru", "--capacity", "3"], 2, &["3 experts a layer", "4 that a token uses"]);
    with(&["--cache-policy", "best", "--capacity", "8"], 2, &["best", "lru"]);
    with(&["--cache-policy", "lru,static", "--capacity", "8", "--warmup", "0"], 2, &["static", "warm-up"]);
    with(
        &["--cache-policy", "belady", "--capacity", "8", "--lambda", "0.1"],
        2,
        &["belady", "depends on the cache"],
    );
    with(&["--cache-policy", "lru", "--capacity", "8", "--lambda=-1"], 2, &["from 0 to 1000000"]);
    with(&["--cache-policy", "lru", "--capacity", "8", "--noise"], 2, &["--noise"]);
    with(
        &["--cache-policy", "lru", "--capacity", "8", "--warmup", "128"],
        3,
        &["warm-up of 128", "--warmup"],
    );
}

#[test]
fn conversations_that_are_shorter_than_a_window_are_measured() {
    let folder = folder();
    let chats = folder.path().join("chats.jsonl");
    let chat = |at: usize| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"What is {at}?"}},{{"role":"assistant","content":"def f(x): return {at}"}}]}}"#
        )
    };
    fs::write(&chats, (0..40).map(|at| chat(at) + "\n").collect::<String>()).unwrap();
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let measured = |extra: &[&str]| {
        evaluation(eval(&demo()).arg("-f").arg(&chats).args(["--chat-template", template]).args(extra))
    };
    let together = measured(&["-b", "512"]);
    let corpus = &together["corpora"][0];
    assert_eq!(corpus["windows"], 40, "{corpus}");
    assert!(corpus["tokens"].as_u64().unwrap() < 40 * 64, "short ones: {corpus}");
    let apart = measured(&["-b", "128"]);
    assert!((ppl(&together["rows"][0]) / ppl(&apart["rows"][0]) - 1.0).abs() < 1e-3);
}
