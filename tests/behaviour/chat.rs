//! Chats: rendered with the model's template, roles counted apart, answers counted apart.

use crate::profile::{counts, profile, sums};
use crate::support::{demo, folder, json, moeslice, refuses, succeeds, variant};
use moeslice::llama::{
    Backend, Batch, Context, ContextOptions, ContextSettings, Model, ModelPart, Node, ObserveError, Observer,
    PassOutputs, Placement, Site, Token,
};
use moeslice::progress::{Interrupt, Silent};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Turns that end with the demo model's one special token.
const TEMPLATE: &str = "\
{% for message in messages %}
{{ message.role + ': ' + message.content + '<|endoftext|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}";

const FIRST: &str = "Write a function that adds two numbers, and say in English what it does.";
const SECOND: &str = "def add(a, b):\n    return a + b\n\nIt gives the sum of both numbers.";
const THIRD: &str = "¿Y cómo se llama en español?";

/// A folder with the demo model, which now has a template, and two conversations.
fn workshop() -> TempDir {
    let folder = folder();
    variant(&folder.path().join("m.gguf"), |metadata, _| metadata.set("tokenizer.chat_template", TEMPLATE));
    let turn = |role: &str, text: &str| serde_json::json!({ "role": role, "content": text });
    let chats = [
        serde_json::json!({ "messages": [turn("system", "Be brief."), turn("user", FIRST), turn("assistant", SECOND)] }),
        serde_json::json!([turn("user", FIRST), turn("assistant", SECOND), turn("user", THIRD)]),
    ];
    let lines: Vec<String> = chats.iter().map(Value::to_string).collect();
    fs::write(folder.path().join("talk.jsonl"), lines.join("\n")).unwrap();
    folder
}

/// `profile` of `talk.jsonl` with further flags.
fn profile_talk(folder: &TempDir, model: &str, flags: &[&str]) -> assert_cmd::Command {
    let at = |name: &str| folder.path().join(name);
    let mut command = moeslice();
    command.args(["profile", "-dev", "none", "-t", "2", "--force", "-m"]).arg(at(model));
    command.arg("-f").arg(at("talk.jsonl")).arg("-o").arg(at("u.json")).args(flags);
    if !flags.contains(&"-c") {
        command.args(["-c", "128"]);
    }
    command
}

fn usage_of(folder: &TempDir, model: &str, flags: &[&str]) -> Value {
    let at = |name: &str| folder.path().join(name);
    succeeds(&mut profile_talk(folder, model, flags));
    json(&at("u.json"))
}

fn corpora(usage: &Value) -> Vec<(String, u64)> {
    let list = usage["corpora"].as_array().unwrap();
    list.iter()
        .map(|corpus| (corpus["name"].as_str().unwrap().to_owned(), corpus["tokens"].as_u64().unwrap()))
        .collect()
}

fn totals(usage: &Value) -> Vec<Vec<u64>> {
    (0..4).map(|layer| counts(usage, layer, "")).collect()
}

#[test]
fn conversation_counts_as_its_rendered_text() {
    let folder = workshop();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("talk")).unwrap();
    let end = "<|endoftext|>\n";
    let first = format!("system: Be brief.{end}user: {FIRST}{end}assistant: {SECOND}{end}");
    let second = format!("user: {FIRST}{end}assistant: {SECOND}{end}user: {THIRD}{end}");
    fs::write(at("talk/1.txt"), first).unwrap();
    fs::write(at("talk/2.txt"), second).unwrap();
    let mut plain = profile(&at("m.gguf"), &at("plain.json"));
    succeeds(plain.args(["--parse-special", "-f"]).arg(at("talk")));
    let (chats, plain) = (usage_of(&folder, "m.gguf", &[]), json(&at("plain.json")));
    assert_eq!(corpora(&chats), corpora(&plain));
    assert_eq!(chats["layers"], plain["layers"]);
    // The demo model itself has no template.
    fs::copy(demo(), at("bare.gguf")).unwrap();
    assert_eq!(usage_of(&folder, "bare.gguf", &["--chat-template", TEMPLATE])["layers"], plain["layers"]);
    fs::write(at("template.jinja"), TEMPLATE).unwrap();
    let template = at("template.jinja").display().to_string();
    assert_eq!(usage_of(&folder, "bare.gguf", &["--chat-template", &template])["layers"], plain["layers"]);
}

#[test]
fn special_tokens_in_plain_text_are_parsed_on_request() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("t.txt"), "one<|endoftext|>two").unwrap();
    let tokens = |flags: &[&str]| {
        succeeds(profile(&demo(), &at("u.json")).args(["--force", "-f"]).arg(at("t.txt")).args(flags));
        corpora(&json(&at("u.json")))[0].1
    };
    fs::write(at("without.txt"), "onetwo").unwrap();
    let (text, parsed) = (tokens(&[]), tokens(&["--parse-special"]));
    assert!(parsed + 2 < text, "{parsed} tokens with one special token in them, {text} as text");
}

#[test]
fn bos_stands_once_at_the_beginning_from_template_or_tokenizer() {
    let folder = workshop();
    let with_bos = format!("{{{{ bos_token }}}}{TEMPLATE}");
    variant(&folder.path().join("adds.gguf"), |metadata, _| {
        metadata.set("tokenizer.ggml.add_bos_token", true);
        metadata.set("tokenizer.chat_template", TEMPLATE);
    });
    let plain = usage_of(&folder, "m.gguf", &[]);
    let by_model = usage_of(&folder, "adds.gguf", &[]);
    let by_both = usage_of(&folder, "adds.gguf", &["--chat-template", &with_bos]);
    let by_template = usage_of(&folder, "m.gguf", &["--chat-template", &with_bos]);
    assert_eq!(corpora(&by_model)[0].1, corpora(&plain)[0].1 + 2, "one for each of two conversations");
    assert_eq!(by_both["layers"], by_model["layers"]);
    assert_eq!(by_template["layers"], by_model["layers"], "the texts fit into one window each");

    // Later windows begin with it in the place of their first token, as those of other texts do.
    let windows = |model: &str| corpora(&usage_of(&folder, model, &["-c", "16"]))[0].1;
    assert_eq!(windows("adds.gguf"), windows("m.gguf") + 2);
    let roles = usage_of(&folder, "adds.gguf", &["--by-role", "-c", "16"]);
    assert_eq!(roles["layers"][0]["total"]["n_tokens"].as_u64(), Some(windows("adds.gguf")));
}

#[test]
fn roles_are_counted_apart_and_add_up() {
    let folder = workshop();
    for flags in [&["-b", "128"] as &[&str], &["-c", "24", "-b", "24"], &["-b", "128", "--chunks", "1"]] {
        let whole = usage_of(&folder, "m.gguf", flags);
        let apart = usage_of(&folder, "m.gguf", &[flags, &["--by-role"]].concat());
        let names: Vec<String> = corpora(&apart).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["talk/system", "talk/user", "talk/assistant"]);
        assert_eq!(totals(&apart), totals(&whole), "{flags:?}");
        for layer in 0..4 {
            let mut sum = vec![0; 32];
            for (name, tokens) in corpora(&apart) {
                assert_eq!(sums(&apart, layer, &name)["n_tokens"].as_u64(), Some(tokens));
                sum.iter_mut().zip(counts(&apart, layer, &name)).for_each(|(sum, count)| *sum += count);
            }
            assert_eq!(sum, counts(&whole, layer, ""));
        }
    }
}

/// What a message activates does not depend on those after it, so the first message of a conversation counts as it does
/// alone; a wrong order of the tokens would show.
#[test]
fn tokens_count_for_their_message() {
    let folder = workshop();
    let at = |name: &str| folder.path().join(name);
    let talk = fs::read_to_string(at("talk.jsonl")).unwrap();
    let second = talk.lines().nth(1).unwrap();
    fs::write(at("talk.jsonl"), second).unwrap();
    for ubatch in ["1", "8"] {
        let both = usage_of(&folder, "m.gguf", &["--by-role", "-ub", ubatch]);
        let question = serde_json::json!([{ "from": "human", "value": FIRST }]);
        fs::write(at("talk.jsonl"), question.to_string()).unwrap();
        let first = usage_of(&folder, "m.gguf", &["-ub", ubatch]);
        let answer = serde_json::json!([
            { "role": "user", "content": FIRST },
            { "role": "assistant", "content": SECOND },
        ]);
        fs::write(at("talk.jsonl"), answer.to_string()).unwrap();
        let two = usage_of(&folder, "m.gguf", &["-ub", ubatch]);
        fs::write(at("talk.jsonl"), second).unwrap();
        let all = usage_of(&folder, "m.gguf", &["-ub", ubatch]);
        for layer in 0..4 {
            let moved = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(&a, &b)| a.abs_diff(b)).sum::<u64>();
            let less = |a: Vec<u64>, b: Vec<u64>| -> Vec<u64> {
                a.into_iter().zip(b).map(|(a, b)| a.saturating_sub(b)).collect()
            };
            let user =
                less(counts(&all, layer, ""), less(counts(&two, layer, ""), counts(&first, layer, "")));
            let assistant = less(counts(&two, layer, ""), counts(&first, layer, ""));
            // A last ubatch of another length is computed by other kernels: a near-tie may fall the other way.
            let allowed = if ubatch == "1" { 0 } else { 2 };
            let found = moved(&user, &counts(&both, layer, "talk/user"));
            assert!(found <= allowed, "layer {layer}, ubatches of {ubatch}: user differs by {found}");
            let found = moved(&assistant, &counts(&both, layer, "talk/assistant"));
            assert!(found <= allowed, "layer {layer}, ubatches of {ubatch}: assistant differs by {found}");
        }
    }
}

/// What each decode of one token selected.
#[derive(Default)]
struct Selected {
    /// `[layer][expert]`.
    count: Vec<Vec<u64>>,
    tokens: Vec<Token>,
}

impl Observer for Selected {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        node.site().is_some_and(|(site, _)| site == Site::Topk)
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let (_, layer) = node.site().unwrap();
        let mut ids = Vec::new();
        node.read_ids(4, &mut ids)?;
        assert_eq!(ids.len(), 4, "one token at a time");
        ids.iter().for_each(|&id| self.count[layer as usize][id as usize] += 1);
        Ok(())
    }
}

/// Nothing.
struct Blind;

impl Observer for Blind {
    fn wants(&mut self, _: &Node<'_>) -> bool {
        false
    }

    fn observe(&mut self, _: &mut Node<'_>) -> Result<(), ObserveError> {
        Ok(())
    }
}

/// Lets the model go on after `prompt`, without any of the code that profiles.
fn answer(model: &Path, prompt: &str, n: usize) -> Selected {
    let backend = Backend::start().unwrap();
    let placement = Placement { devices: Some(Vec::new()), ..Placement::default() };
    let model = Model::load(backend, model, &placement, &mut Silent, Interrupt::NEVER).unwrap();
    let options = ContextOptions {
        n_ctx: 256,
        n_seq: 1,
        n_batch: 256,
        n_ubatch: 256,
        kv_unified: false,
        part: ModelPart::Trunk,
        outputs: PassOutputs::Logits,
        settings: ContextSettings { threads: 2, threads_batch: 2, ..ContextSettings::default() },
    };
    let mut context = Context::new(&model, &options).unwrap();
    let mut batch = Batch::new();
    let prompt = model.vocab().tokenize(prompt, true).unwrap();
    batch.push(0, 0, &prompt);
    context.decode(&mut batch, &mut Blind).unwrap();
    let mut selected = Selected { count: vec![vec![0; 32]; 4], tokens: Vec::new() };
    for at in 0..n {
        let logits = context.logits(batch.len() - 1).unwrap().unwrap();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as Token;
        selected.tokens.push(best);
        batch.clear();
        batch.push(0, (prompt.len() + at) as u32, &[best]);
        context.decode(&mut batch, &mut selected).unwrap();
    }
    selected
}

#[test]
fn generated_answer_is_counted_apart_from_the_question() {
    let folder = workshop();
    let at = |name: &str| folder.path().join(name);
    let question =
        serde_json::json!([{ "role": "user", "content": FIRST }, { "role": "assistant", "content": "x" }]);
    fs::write(at("talk.jsonl"), question.to_string()).unwrap();
    let prompt = format!("user: {FIRST}<|endoftext|>\nassistant:");
    let expected = answer(&at("m.gguf"), &prompt, 20);
    let usage = usage_of(&folder, "m.gguf", &["--generate", "20"]);
    let prompt_tokens = corpora(&usage)[0].1;
    assert_eq!(corpora(&usage), [("talk".into(), prompt_tokens), ("talk/generated".into(), 20)]);
    for (layer, count) in expected.count.iter().enumerate() {
        assert_eq!(counts(&usage, layer, "talk/generated"), *count, "layer {layer}");
    }
    // The question alone, the given answer left out, with the beginning of one.
    fs::write(at("prompt.txt"), &prompt).unwrap();
    let mut plain = profile(&at("m.gguf"), &at("plain.json"));
    succeeds(plain.args(["--parse-special", "--lm-head", "-f"]).arg(at("prompt.txt")));
    for layer in 0..4 {
        assert_eq!(counts(&usage, layer, "talk"), counts(&json(&at("plain.json")), layer, ""));
    }
    let roles = usage_of(&folder, "m.gguf", &["--generate", "20", "--by-role"]);
    let names: Vec<String> = corpora(&roles).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["talk/user", "talk/assistant", "talk/generated"]);
    assert_eq!(totals(&roles), totals(&usage));
    assert_eq!(sums(&roles, 3, "talk/generated"), sums(&usage, 3, "talk/generated"));

    // An answer ends where the model ends it: here its fourth token does.
    let ends_at = |token: Token, name: &str| {
        let token = u32::try_from(token).unwrap();
        variant(&at(name), |metadata, _| {
            metadata.set("tokenizer.chat_template", TEMPLATE);
            metadata.set("tokenizer.ggml.eot_token_id", token);
        });
    };
    let stop = (1..20).find(|&at| !expected.tokens[..at].contains(&expected.tokens[at])).unwrap();
    ends_at(expected.tokens[stop], "short.gguf");
    let short = usage_of(&folder, "short.gguf", &["--generate", "20"]);
    assert_eq!(corpora(&short)[1], ("talk/generated".into(), stop as u64));

    // A model that has nothing to answer leaves no corpus, and that is said.
    ends_at(expected.tokens[0], "mute.gguf");
    let output = profile_talk(&folder, "mute.gguf", &["--generate", "20"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("not a single token was generated"),
        "{output:?}"
    );
    assert_eq!(corpora(&json(&at("u.json"))), [("talk".into(), prompt_tokens)]);
}

#[test]
fn conversation_is_answered_once_after_its_last_window() {
    let folder = workshop();
    let one = usage_of(&folder, "m.gguf", &["--generate", "3"]);
    assert_eq!(corpora(&one)[1], ("talk/generated".into(), 6), "two conversations");
    let cut = usage_of(&folder, "m.gguf", &["--generate", "3", "-c", "16"]);
    assert_eq!(corpora(&cut), corpora(&one));
    let some = usage_of(&folder, "m.gguf", &["--generate", "3", "-c", "16", "--chunks", "1"]);
    assert_eq!(corpora(&some), [("talk".into(), 16)], "the conversation goes on after the only window");
    let output = profile_talk(&folder, "m.gguf", &["--generate", "3", "-c", "16"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("2 conversations are longer than a window"), "{stderr}");
}

#[test]
fn folder_of_chats_and_plain_texts_is_profiled() {
    let folder = workshop();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("mixed")).unwrap();
    fs::rename(at("talk.jsonl"), at("mixed/talk.JSONL")).unwrap();
    fs::write(at("mixed/notes.txt"), FIRST).unwrap();
    succeeds(profile(&at("m.gguf"), &at("u.json")).args(["--by-role", "-f"]).arg(at("mixed")));
    let usage = json(&at("u.json"));
    let names: Vec<String> = corpora(&usage).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["mixed", "mixed/system", "mixed/user", "mixed/assistant"]);
    assert_eq!(
        usage["run"]["batch_size"], 128,
        "one window a batch, so that the order of its tokens is known"
    );
    // The program itself takes the usage for sound.
    succeeds(moeslice().arg("report").arg(at("u.json")));
}

#[test]
fn unusable_chats_are_refused_before_the_model_is_loaded() {
    let folder = workshop();
    let at = |name: &str| folder.path().join(name);
    let try_with = |flags: &[&str], file: &str, words: &[&str]| {
        refuses(profile(&at("headless.gguf"), &at("u.json")).args(flags).arg("-f").arg(at(file)), 3, words);
        assert!(!at("u.json").exists());
    };
    // llama.cpp would refuse this model, but is not even asked.
    variant(&at("headless.gguf"), |metadata, _| {
        metadata.remove("tokenizer.ggml.model");
    });
    try_with(&[], "talk.jsonl", &["talk.jsonl", "brings no chat template", "--chat-template"]);
    let refusing = "{{ raise_exception('no system, please') }}";
    try_with(
        &["--chat-template", refusing],
        "talk.jsonl",
        &["talk.jsonl: 2 of 2 conversations", "line 1", "no system, please"],
    );
    try_with(&["--chat-template", "{% if %}"], "talk.jsonl", &["--chat-template cannot be read"]);
    try_with(&["--chat-template", "chatml"], "talk.jsonl", &["chatml: cannot read the chat template"]);
    fs::write(at("bad.jsonl"), "[{\"role\":\"user\",\"content\":\"a\"}]\n{\"role\":\"user\"}\n").unwrap();
    try_with(&["--chat-template", TEMPLATE], "bad.jsonl", &["bad.jsonl, line 2", "\"messages\""]);
    fs::write(at("empty.jsonl"), "\n\n").unwrap();
    try_with(&[], "empty.jsonl", &["holds no text"]);
    fs::write(at("t.txt"), FIRST).unwrap();
    try_with(&["--by-role"], "t.txt", &["--by-role", ".jsonl"]);
    try_with(&["--generate", "5"], "t.txt", &["--generate", ".jsonl"]);
    try_with(&["--chat-template", TEMPLATE], "t.txt", &["--chat-template", ".jsonl"]);
}
