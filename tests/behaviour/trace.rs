//! Traces: the routing is what a profile counts, chats are sessions, and nothing is lost to a kill.

use crate::profile::{counts, profile};
use crate::support::{demo, folder, json, moeslice, refuses, repository, succeeds, variant};
use moeslice::trace::{self, Batch, Phase, RouterValues, Row, TraceMeta, TraceReader};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn record(model: &Path, output: &Path) -> assert_cmd::Command {
    let mut command = moeslice();
    command
        .args(["trace", "-q", "-dev", "none", "-c", "128", "-t", "1", "-m"])
        .arg(model)
        .arg("-o")
        .arg(output);
    command
}

fn read(path: &Path) -> (TraceMeta, Batch) {
    let mut trace = trace::open(path).unwrap();
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while trace.read(&mut batch).unwrap() {
        all.append(&mut batch);
    }
    assert_eq!(trace.remark(), None);
    (trace.meta().clone(), all)
}

fn text(name: &str, length: usize) -> String {
    fs::read_to_string(repository("corpora/dev").join(name)).unwrap().chars().take(length).collect()
}

#[test]
fn trace_selects_what_a_profile_of_the_same_texts_counts() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("texts")).unwrap();
    fs::write(at("texts/a.txt"), text("expression.py", 900)).unwrap();
    fs::write(at("texts/b.txt"), text("digraph.py", 300)).unwrap();
    succeeds(record(&demo(), &at("t.arrow")).args(["-ub", "32"]).arg("-f").arg(at("texts")));
    assert!(!at("t.arrow.part").exists());
    // One window a batch, as the trace has it: several compute in another order, which moves near-ties.
    succeeds(profile(&demo(), &at("u.json")).args(["-ub", "32", "-b", "128"]).arg("-f").arg(at("texts")));
    let (meta, batch) = read(&at("t.arrow"));
    let usage = json(&at("u.json"));
    assert_eq!(Some(batch.rows.len() as u64), usage["corpora"][0]["tokens"].as_u64());
    assert_eq!((meta.layers.len(), meta.candidates, meta.router_values), (4, 8, RouterValues::Logits));
    for (at, layer) in meta.layers.iter().enumerate() {
        assert_eq!(layer.bytes_per_expert(), 26_112);
        let mut counted = vec![0_u64; 32];
        for ids in batch.ids.chunks(32) {
            ids[at * 8..at * 8 + 4].iter().for_each(|id| counted[usize::from(*id)] += 1);
        }
        assert_eq!(counted, counts(&usage, at, ""), "layer {at}");
    }
    assert!(
        batch.values.chunks(8).all(|values| values.is_sorted_by(|a, b| a >= b)),
        "candidates are best first"
    );
    for (values, (min, mean)) in batch.values.chunks(8).zip(batch.z_min.iter().zip(&batch.z_mean)) {
        assert!(*min <= values[7] && *min < *mean && *mean < values[0]);
    }
    let sessions: BTreeSet<u32> = batch.rows.iter().map(|row| row.session).collect();
    assert_eq!(sessions, BTreeSet::from([0, 1]));
    assert!(batch.rows.iter().all(|row| row.phase == Phase::Prefill && row.turn == 0));
    // Ubatches of 32 tokens, shorter where a window ends.
    let widths: Vec<usize> = batch.rows.chunk_by(|a, b| a.ubatch == b.ubatch).map(<[Row]>::len).collect();
    assert!(
        widths.iter().all(|width| *width <= 32) && widths.iter().filter(|width| **width == 32).count() > 4
    );
    assert!(batch.rows.is_sorted_by_key(|row| row.ubatch));
}

#[test]
fn generated_tokens_are_decode_and_each_a_request_of_its_own() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.txt"), text("expression.py", 200)).unwrap();
    let run = |output: &str, flags: &[&str]| {
        succeeds(
            record(&demo(), &at(output)).arg("-f").arg(at("a.txt")).args(["--generate", "12"]).args(flags),
        );
        read(&at(output)).1
    };
    let greedy = run("greedy.arrow", &[]);
    let decode: Vec<&Row> = greedy.rows.iter().filter(|row| row.phase == Phase::Decode).collect();
    assert!(!decode.is_empty() && decode.len() <= 12);
    assert!(decode.iter().all(|row| row.turn == 1));
    assert!(greedy.rows.is_sorted_by(|a, b| a.position + 1 == b.position), "it goes on where the text ends");
    let ubatches: BTreeSet<u64> = decode.iter().map(|row| row.ubatch).collect();
    assert_eq!(ubatches.len(), decode.len());
    let tokens = |batch: &Batch| batch.rows.iter().map(|row| row.token).collect::<Vec<_>>();
    assert_eq!(tokens(&run("again.arrow", &[])), tokens(&greedy));
    let hot = ["--temp", "5", "--seed", "1"];
    assert_ne!(tokens(&run("hot.arrow", &hot)), tokens(&greedy));
    assert_eq!(tokens(&run("hot2.arrow", &hot)), tokens(&read(&at("hot.arrow")).1));
}

#[test]
fn chats_are_sessions_with_their_turns_in_order() {
    const TEMPLATE: &str = "{% for message in messages %}{{ message.role + ': ' + message.content + '<|endoftext|>' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    variant(&at("m.gguf"), |metadata, _| metadata.set("tokenizer.chat_template", TEMPLATE));
    let turn = |role: &str, text: &str| serde_json::json!({ "role": role, "content": text });
    let chats = [
        serde_json::json!([
            turn("system", "Be brief."),
            turn("user", "Add two numbers."),
            turn("assistant", "a + b")
        ]),
        serde_json::json!([turn("user", "And in Spanish?")]),
    ];
    fs::write(at("talk.jsonl"), chats.map(|chat| chat.to_string()).join("\n")).unwrap();
    succeeds(record(&at("m.gguf"), &at("t.arrow")).arg("-f").arg(at("talk.jsonl")));
    let (_, batch) = read(&at("t.arrow"));
    let turns: BTreeSet<(u32, u32)> = batch.rows.iter().map(|row| (row.session, row.turn)).collect();
    assert_eq!(turns, BTreeSet::from([(0, 0), (0, 1), (0, 2), (1, 0)]));
    assert!(batch.rows.is_sorted_by_key(|row| (row.session, row.turn)));
}

#[test]
fn trace_refuses_outputs_that_are_taken() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.txt"), text("expression.py", 100)).unwrap();
    fs::write(at("t.arrow.part"), "what a killed run left").unwrap();
    let mut command = record(&demo(), &at("t.arrow"));
    refuses(command.arg("-f").arg(at("a.txt")), 2, &["t.arrow.part exists", "--force"]);
    succeeds(command.arg("--force"));
    assert!(at("t.arrow").exists() && !at("t.arrow.part").exists());
    refuses(record(&demo(), &at("t.arrow")).arg("-f").arg(at("a.txt")), 2, &["t.arrow exists"]);
    refuses(record(&demo(), &at("a.txt")).arg("--force").arg("-f").arg(at("a.txt")), 2, &["an input"]);
}

#[test]
fn trace_of_another_model_is_told_from_one_of_another_quantisation() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.txt"), text("expression.py", 100)).unwrap();
    succeeds(record(&demo(), &at("t.arrow")).arg("-f").arg(at("a.txt")));
    let replay = |model: &Path| {
        let mut command = moeslice();
        command.arg("replay").arg(at("t.arrow")).args([
            "--capacity",
            "8",
            "--warmup",
            "1",
            "--one-by-one",
            "-m",
        ]);
        command.arg(model);
        command
    };
    assert!(replay(&demo()).output().unwrap().stderr.is_empty());

    // The same shape with another router: what is counted holds, and that the routing is another's is said.
    variant(&at("other.gguf"), |_, tensors| {
        let router = tensors.iter_mut().find(|(info, _)| info.name == "blk.0.ffn_gate_inp.weight").unwrap();
        router.1[0] ^= 1;
    });
    let output = replay(&at("other.gguf")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("has other routers"), "{said}");

    let usage = at("u.json");
    succeeds(
        moeslice().arg("profile").arg("-m").arg(demo()).arg("-f").arg(at("a.txt")).arg("-o").arg(&usage),
    );
    let cut = |from: &Path| {
        let mut command = moeslice();
        command.arg("prune").arg("-m").arg(from).arg("--usage").arg(&usage).args(["--keep", "24", "-o"]);
        command.arg(at("cut.gguf"));
        command
    };
    succeeds(&mut cut(&demo()));
    refuses(&mut replay(&at("cut.gguf")), 3, &["layer 0", "not as in this model"]);
    // Nor has a trace of a cut the experts of the whole.
    succeeds(record(&at("cut.gguf"), &at("t.arrow")).arg("--force").arg("-f").arg(at("a.txt")));
    refuses(&mut replay(&demo()), 3, &["layer 0", "not as in this model"]);
}

#[cfg(unix)]
#[test]
fn recording_that_is_asked_to_end_says_what_it_left_also_in_the_background_of_a_shell() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let part = at("t.arrow.part");
    // A shell lets what it runs in the background ignore Ctrl-C, and the process that runs the model inherits that.
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap '' INT; exec "$@""#, "sh"]).arg(assert_cmd::cargo::cargo_bin!("moeslice"));
    command
        .args(["trace", "-dev", "none", "-c", "128", "-t", "1", "--generate", "1000000", "-m"])
        .arg(demo());
    command.arg("-o").arg(at("t.arrow")).arg("-f").arg(repository("corpora/family"));
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    while fs::metadata(&part).map_or(0, |found| found.len()) < 1 << 18 {
        thread::sleep(Duration::from_millis(10));
    }
    let asked = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert!(asked.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("t.arrow.part has what was recorded") && !said.contains("nothing was"), "{said}");
    let mut replay = moeslice();
    let table = succeeds(replay.arg("replay").arg(&part).args(["--capacity", "8", "--policy", "lru"]));
    assert!(table.contains("8/layer"), "{table}");
}
