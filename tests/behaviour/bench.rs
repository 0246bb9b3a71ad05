//! `bench`: rows of every test of every model, in all forms.

use crate::support::{demo, folder, moeslice, refuses, succeeds, write_usage};
use assert_cmd::Command;
use serde_json::Value;

/// A bench that is over soon, and so says nothing of speed.
fn bench() -> Command {
    let mut command = moeslice();
    command
        .args(["bench", "-q", "-dev", "none", "-t", "1", "-r", "2", "-p", "8,16", "-n", "3", "-m"])
        .arg(demo());
    command
}

#[test]
fn bench_gives_a_row_for_each_test_of_each_model() {
    let rows: Value =
        serde_json::from_str(&succeeds(bench().arg("-m").arg(demo()).args(["--format", "json"]))).unwrap();
    let rows = rows.as_array().unwrap();
    let tests: Vec<&str> = rows.iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["pp8", "pp16", "tg3", "pp8", "pp16", "tg3"]);
    for row in rows {
        assert_eq!(row["samples_ns"].as_array().unwrap().len(), 2, "{row}");
        assert_eq!(row["load_seconds"].as_array().unwrap().len(), 2, "each round loads the model: {row}");
        let speeds: Vec<f64> =
            row["samples_ts"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let mean = speeds.iter().sum::<f64>() / 2.0;
        assert!((row["avg_ts"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9, "{row}");
        assert!(row["model_type"].as_str().unwrap().contains("qwen3moe"), "{row}");
        assert_eq!(row["model_n_params"], 3_622_272, "{row}");
    }
    assert!(rows[..3].iter().all(|row| row["ratio"] == 1.0), "the first is held against itself");
    let ratio = rows[3]["median_ts"].as_f64().unwrap() / rows[0]["median_ts"].as_f64().unwrap();
    assert!((rows[3]["ratio"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9);
}

#[test]
fn bench_runs_as_llama_bench_does_unless_it_is_told_otherwise() {
    let row = |bench: &mut Command| -> Value {
        let text = succeeds(bench.args(["--format", "jsonl"]));
        serde_json::from_str(text.lines().next().unwrap()).unwrap()
    };
    let settings = |row: &Value| {
        let of = |name: &str| row[name].clone();
        [of("repack"), of("no_kv_offload"), of("flash_attn"), of("devices"), of("no_op_offload")]
    };
    let usual: [Value; 5] = [true.into(), false.into(), (-1).into(), "none".into(), 0.into()];
    assert_eq!(settings(&row(&mut bench())), usual);
    let other: [Value; 5] = [false.into(), true.into(), 0.into(), "none".into(), 1.into()];
    let flags = ["--no-repack", "-nkvo", "-fa", "off", "--no-op-offload"];
    assert_eq!(settings(&row(bench().args(flags))), other);
    let placed = row(bench().args(["-ncmoe", "2", "-tb", "2", "-lm", "none"]));
    assert_eq!((&placed["n_cpu_moe"], &placed["load_mode"]), (&2.into(), &"none".into()));
    assert_eq!(placed["tensor_buft_overrides"], "none", "n_cpu_moe says it already");
    assert_eq!(placed["n_threads"], 2, "those of a batch");
    let all = succeeds(bench().args(["-ncmoe", "1", "-cmoe", "-tb", "2", "--format", "jsonl"]));
    let all: Value = serde_json::from_str(all.lines().last().unwrap()).unwrap();
    assert_eq!(all["tensor_buft_overrides"], r"\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU");
    assert_eq!((&all["n_gen"], &all["n_threads"]), (&3.into(), &1.into()), "those of one token");
    // Being there is enough for these two, as in llama.cpp.
    let mut by_variables = bench();
    by_variables.env("LLAMA_ARG_NO_REPACK", "0").env("LLAMA_ARG_NO_KV_OFFLOAD", "false");
    assert_eq!(settings(&row(&mut by_variables))[..2], other[..2]);
    assert_eq!(settings(&row(by_variables.args(["--repack", "-kvo"])))[..2], usual[..2]);
    let mut by_variables = bench();
    by_variables.env("LLAMA_ARG_REPACK", "off").env("LLAMA_ARG_KV_OFFLOAD", "disabled");
    assert_eq!(settings(&row(&mut by_variables))[..2], other[..2]);
}

#[test]
fn bench_writes_every_form_to_stdout_or_a_file() {
    let folder = folder();
    let markdown = succeeds(&mut bench());
    let lines: Vec<&str> = markdown.lines().collect();
    let usual = "| model | size | params | backend | threads | dev | test | t/s | file | median t/s | ratio | load s | peak |";
    assert!(lines[0].replace("ngl", "threads") == usual && lines[1].starts_with("|---|---:|"), "{markdown}");
    assert!(lines[2].starts_with("| qwen3moe ?B Q8_0 | 3.72 MiB | 3.62 M | "), "{markdown}");
    assert_eq!(lines[5..], ["", "build: unknown (0)"], "{markdown}");
    let csv = succeeds(bench().args(["--format", "csv"]));
    let header = csv.lines().next().unwrap();
    assert!(
        header.starts_with("build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,"),
        "{header}"
    );
    assert!(
        header.contains(",n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,build_version,name,test,"),
        "{header}"
    );
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert_eq!(rows.len(), 3);
    // embeddings, no_op_offload, no_host and repack, as llama-bench writes them.
    assert!(rows.iter().all(|row| row.contains(r#","auto","auto","0","0","0","1","0","0","#)), "{csv}");
    let lines = folder.path().join("rows.jsonl");
    assert_eq!(succeeds(bench().args(["--format", "jsonl", "-o"]).arg(&lines)), "");
    let text = std::fs::read_to_string(&lines).unwrap();
    assert!(
        text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()) && text.lines().count() == 3
    );
    refuses(bench().arg("-o").arg(&lines), 2, &["rows.jsonl", "exists"]);
}

#[test]
fn bench_of_kept_counts_measures_cuts_and_leaves_none() {
    let folder = folder();
    let usage = folder.path().join("u.json");
    write_usage(&usage, &demo(), |_, expert| if expert < 16 { 30 } else { 10 });
    let mut command = bench();
    command.args(["--keep", "24,16", "--format", "json", "--usage"]).arg(&usage).env("TMPDIR", folder.path());
    let rows: Value = serde_json::from_str(&succeeds(&mut command)).unwrap();
    let size = |at: usize| rows[at]["file_bytes"].as_u64().unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 9);
    assert!(size(0) > size(3) && size(3) > size(6), "{rows}");
    assert!(rows[6]["name"].as_str().unwrap().contains("16e"), "{rows}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the usage file is left");
}

#[test]
fn bench_of_nothing_or_of_no_model_is_refused() {
    let mut command = moeslice();
    command.args(["bench", "-p", "0", "-n", "0", "-m"]).arg(demo());
    refuses(&mut command, 2, &["nothing to measure"]);
    refuses(moeslice().args(["bench", "-m", "/dev/null"]), 3, &["/dev/null"]);
    refuses(bench().arg("-m").arg(demo()).args(["--usage", "u.json", "--keep", "16"]), 2, &["one -m"]);
}
