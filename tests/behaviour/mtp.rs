//! What becomes of a block of multi-token prediction: `--mtp profile`, `drop` and `plan`.

use crate::models::isolated;
use crate::models::recipe::Recipe;
use crate::models::tiny::TinyModel;
use crate::support::{folder, json, moeslice, refuses, succeeds};
use assert_cmd::Command;
use moeslice::gguf::Model;
use serde_json::json;
use std::fs;
use std::path::Path;

/// Writes the model that the environment names; llama.cpp may end the process, so it is one of its own.
#[test]
#[ignore = "the child process of the other tests"]
fn child() {
    // With --include-ignored it is started by hand, and has nothing to do.
    let Some(task) = isolated::task() else { return };
    let (architecture, path) = task.split_once(' ').expect("an architecture and a path");
    let mut recipe = Recipe::of(architecture);
    recipe.mtp();
    // llama.cpp has a graph for the block of glm4moe only without these.
    recipe.unset("rope.dimension_sections");
    let mut tiny = TinyModel::of(&recipe).unwrap_or_else(|e| panic!("{e}"));
    // llama.cpp makes scales for the block, but does not count them when it passes the block over.
    tiny.tensors.retain(|(info, _)| !(info.name.starts_with("blk.3.") && info.name.ends_with("scale")));
    tiny.write(Path::new(path));
}

/// A model of 3 layers, the first dense, and a block; llama.cpp runs the block of glm4moe, and not that of mimo2.
fn model(architecture: &str, path: &Path) {
    let task = format!("{architecture} {}", path.display());
    isolated::run("mtp::child", &task, &[]).unwrap_or_else(|e| panic!("{e}"));
}

fn on(command: &str, model: &Path, arguments: &[&str]) -> Command {
    let mut run = moeslice();
    run.arg(command);
    if ["run", "profile"].contains(&command) {
        run.args(["-dev", "none", "-t", "1", "-c", "32"]);
    }
    run.arg("-m").arg(model).args(arguments);
    run
}

fn layers_of(usage: &Path) -> Vec<u64> {
    let usage = json(usage);
    usage["layers"].as_array().unwrap().iter().map(|layer| layer["layer"].as_u64().unwrap()).collect()
}

fn text(path: &Path) {
    let text: String = (0..400_u32).map(|at| char::from(b'a' + (at * at * 7 % 26) as u8)).collect();
    fs::write(path, text).unwrap();
}

#[test]
fn mtp_block_that_llama_cpp_runs_is_profiled_or_left_out() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let name = |file: &str| at(file).display().to_string();
    model("glm4moe", &at("m.gguf"));
    text(&at("t.txt"));
    let (m, t) = (at("m.gguf"), name("t.txt"));
    let inspected = succeeds(moeslice().arg("inspect").arg(&m));
    assert!(inspected.contains("3, with experts, counted in a profile"), "{inspected}");
    assert!(inspected.contains("--mtp drop"), "{inspected}");

    succeeds(&mut on("profile", &m, &["-f", &t, "-o", &name("with.json")]));
    succeeds(&mut on("profile", &m, &["-f", &t, "-o", &name("without.json"), "--mtp", "drop"]));
    assert_eq!((layers_of(&at("with.json")), layers_of(&at("without.json"))), (vec![1, 2, 3], vec![1, 2]));

    let run = on("run", &m, &["-f", &t, "--keep", "4", "-o", &name("run.gguf"), "--mtp", "drop"]);
    let table = succeeds(&mut { run });
    assert!(table.contains("the block is left out"), "{table}");
    assert_eq!(layers_of(&at("run.usage.json")), [1, 2]);
    // The same from the steps, whether the usage counts the block or not.
    for usage in ["with.json", "run.usage.json"] {
        let arguments =
            ["--usage", &name(usage), "--keep", "4", "-o", &name("o.gguf"), "--mtp", "drop", "--force"];
        succeeds(&mut on("prune", &m, &arguments));
        assert!(fs::read(at("o.gguf")).unwrap() == fs::read(at("run.gguf")).unwrap(), "{usage}");
    }
    let cut = Model::open(&at("o.gguf")).unwrap();
    assert_eq!(cut.arch_value("block_count").unwrap().as_u64(), Some(3));
    assert!(cut.tensors().iter().all(|tensor| !tensor.info.name.starts_with("blk.3.")));
    succeeds(moeslice().arg("verify").arg(&m).arg(at("o.gguf")));
    assert!(succeeds(moeslice().arg("inspect").arg(at("o.gguf"))).contains("left out by --mtp drop"));
    // What is left runs, and can be cut again and still be compared with the model that it began with.
    succeeds(&mut on("run", &at("o.gguf"), &["-f", &t, "--keep", "3", "-o", &name("again.gguf")]));
    succeeds(moeslice().arg("verify").arg(&m).arg(at("again.gguf")));

    let without = ["--usage", &name("without.json"), "--keep", "4", "-o", &name("x.gguf")];
    refuses(&mut on("prune", &m, &without), 3, &["layer 3", "--mtp profile", "--mtp drop", "--plan"]);
    assert!(!at("x.gguf").exists());
}

#[test]
fn mtp_block_that_llama_cpp_does_not_run_is_left_out_or_planned() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let name = |file: &str| at(file).display().to_string();
    model("mimo2", &at("m.gguf"));
    text(&at("t.txt"));
    let (m, t) = (at("m.gguf"), name("t.txt"));
    let run = ["-f", &t, "--keep", "4", "-o", &name("o.gguf")];
    refuses(&mut on("run", &m, &run), 3, &["layer 3", "llama.cpp cannot run", "--mtp drop", "plan"]);
    let profile = ["-f", &t, "-o", &name("u.json")];
    refuses(on("profile", &m, &profile).args(["--mtp", "profile"]), 3, &["layer 3", "--mtp drop"]);
    succeeds(&mut on("profile", &m, &profile));

    // A plan by hand: the counts choose the layers' experts, its owner the block's.
    let plan = [&name("u.json"), "--keep", "4", "-o", &name("p.json"), "--mtp", "plan"];
    succeeds(&mut on("plan", &m, &plan));
    let by_plan = ["--plan", &name("p.json"), "-o", &name("o.gguf")];
    refuses(&mut on("prune", &m, &by_plan), 3, &["layer 3", "is missing", "--mtp drop"]);
    let mut edited = json(&at("p.json"));
    let layers = edited["keep"].as_object_mut().unwrap();
    let others: Vec<_> = layers.keys().cloned().collect();
    assert!(!others.contains(&"3".to_owned()) && !others.is_empty());
    layers.insert("3".to_owned(), json!([0, 2, 5, 7]));
    fs::write(at("p.json"), edited.to_string()).unwrap();
    succeeds(on("prune", &m, &by_plan).args(["--mtp", "plan"]));
    let cut = Model::open(&at("o.gguf")).unwrap();
    let ids = cut.metadata().get("moeslice.expert_ids.3").unwrap().as_array().unwrap().to_u64s();
    assert_eq!(ids, Some(vec![0, 2, 5, 7]));
    // The same plan does for a file without the block.
    let dropped = ["--plan", &name("p.json"), "-o", &name("d.gguf"), "--mtp", "drop"];
    succeeds(&mut on("prune", &m, &dropped));
    succeeds(moeslice().arg("verify").arg(&m).arg(at("d.gguf")).arg("--plan").arg(at("p.json")));
    assert!(fs::metadata(at("d.gguf")).unwrap().len() < fs::metadata(at("o.gguf")).unwrap().len());

    // A size is met by the file that is written.
    let bytes = fs::metadata(at("d.gguf")).unwrap().len();
    let fits = format!("size:{}", bytes + 1000);
    let sized = ["--usage", &name("u.json"), "--keep", &fits, "-o", &name("s.gguf"), "--mtp", "drop"];
    succeeds(&mut on("prune", &m, &sized));
    assert!(fs::metadata(at("s.gguf")).unwrap().len() <= bytes + 1000);
    assert_eq!(Model::open(&at("s.gguf")).unwrap().arch_value("expert_count").unwrap().as_u64(), Some(4));
}

#[test]
fn mtp_flag_without_effect_is_refused() {
    let folder = folder();
    let demo = crate::support::demo();
    let out = folder.path().join("o.gguf").display().to_string();
    let prune = ["--usage", "u.json", "--keep", "4", "-o", &out, "--mtp", "plan"];
    refuses(&mut on("prune", &demo, &prune), 2, &["--mtp plan", "--usage"]);
    let prune = ["--plan", "p.json", "-o", &out, "--mtp", "profile"];
    refuses(&mut on("prune", &demo, &prune), 2, &["--mtp profile", "plan"]);
    let run = ["-f", "t.txt", "--keep", "4", "-o", &out, "--mtp", "plan"];
    refuses(&mut on("run", &demo, &run), 2, &["--mtp plan"]);
    let profile = ["-f", "t.txt", "-o", &out, "--mtp", "plan"];
    refuses(&mut on("profile", &demo, &profile), 2, &["--mtp plan"]);
}

/// What a model generates does not go through the block, and a window of one token has no step in it.
#[test]
fn usage_of_mtp_block_can_be_read_whatever_the_texts_are() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let name = |file: &str| at(file).display().to_string();
    model("glm4moe", &at("m.gguf"));
    text(&at("t.txt"));
    let chat: String = (0..90_u32).map(|at| char::from(b'a' + (at * at % 26) as u8)).collect();
    let line = json!({"messages": [{"role": "user", "content": chat}]});
    fs::write(at("c.jsonl"), format!("{line}\n")).unwrap();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let arguments =
        ["-f", &name("c.jsonl"), "--generate", "3", "--chat-template", template, "-o", &name("g.json")];
    succeeds(&mut on("profile", &at("m.gguf"), &arguments));
    let usage = json(&at("g.json"));
    assert_eq!(layers_of(&at("g.json")), [1, 2, 3]);
    assert_eq!(usage["layers"][1]["corpora"]["c/generated"]["n_tokens"], 3);
    assert_eq!(usage["layers"][2]["corpora"]["c/generated"]["n_tokens"], 0, "the block sees no answer");
    succeeds(moeslice().arg("report").arg(at("g.json")));
    let plan = [&name("g.json"), "--keep", "4", "-o", &name("p.json")];
    succeeds(&mut on("plan", &at("m.gguf"), &plan));

    let one = ["-f", &name("t.txt"), "-o", &name("one.json"), "-c", "1"];
    succeeds(&mut on("profile", &at("m.gguf"), &one));
    assert_eq!(layers_of(&at("one.json")), [1, 2], "the block has no counts");
    succeeds(moeslice().arg("report").arg(at("one.json")));
    // Windows in slices, in the block too: no buffer is larger than a batch.
    let counts = |name: &str, more: &[&str]| {
        let output = at(name).display().to_string();
        succeeds(
            on("profile", &at("m.gguf"), &["-f", &at("t.txt").display().to_string(), "-o", &output])
                .args(more),
        );
        json(&at(name))
    };
    let (whole, sliced) = (counts("w.json", &["-ub", "8"]), counts("s.json", &["-ub", "8", "-b", "8"]));
    assert_eq!(sliced["run"]["batch_size"], 8);
    assert_eq!(whole["layers"], sliced["layers"]);
    // One corpus of such windows beside another: a text of one token.
    fs::write(at("s.txt"), "abcde").unwrap();
    let two = ["-f", &name("t.txt"), "-f", &name("s.txt"), "-o", &name("two.json")];
    succeeds(&mut on("profile", &at("m.gguf"), &two));
    assert_eq!(json(&at("two.json"))["layers"][2]["corpora"]["s"]["n_tokens"], 0);
    succeeds(moeslice().arg("report").arg(at("two.json")));
}
