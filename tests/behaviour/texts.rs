//! Texts as people have them: pipes, folders with all sorts of files, long lines, and chats that are not all good.

use crate::profile::profile;
use crate::support::{demo, folder, json, moeslice, refuses, repository, succeeds, variant};
use moeslice::corpus::{ChatReader, TextSource, read_corpora};
use moeslice::llama::{Backend, Model, Placement, Token};
use moeslice::progress::{Interrupt, Silent};
use moeslice::windows::{Cut, Windows};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// English words and code, some 600 kB, with long lines in it.
fn long_text() -> String {
    let mut text = String::new();
    let mut files: Vec<_> =
        fs::read_dir(repository("corpora/dev")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    while text.len() < 600_000 {
        files.iter().for_each(|file| text += &fs::read_to_string(file).unwrap());
        text += &"привет мир\nдом и сад. 是。\n日本語 é ñandú\nÉl ".repeat(20);
        text += &" one two,three \t 12345 ¿qué? 日本語 \r\n \n\n".repeat(50);
    }
    text
}

/// The demo model with another pre-tokenizer.
fn with_pre_tokenizer(folder: &TempDir, name: &str) -> std::path::PathBuf {
    let path = folder.path().join(format!("{name}.gguf"));
    variant(&path, |metadata, _| metadata.set("tokenizer.ggml.pre", name));
    path
}

fn vocabulary(path: &Path) -> Model {
    let backend = Backend::start().unwrap();
    let placement = Placement { devices: Some(Vec::new()), vocab_only: true, ..Placement::default() };
    Model::load(backend, path, &placement, &mut Silent, Interrupt::NEVER).unwrap()
}

fn cut(model: &Model, file: &Path, limit: usize) -> Vec<Token> {
    let source = TextSource::parse(file.as_os_str()).unwrap();
    let corpora = read_corpora(&[source], &ChatReader::default(), &mut |_| {}).unwrap();
    let cut = Cut { n_tokens: 256, limit, parse_special: false, answer: false, interrupt: Interrupt::NEVER };
    let windows = Windows::cut(model.vocab(), &corpora, cut).unwrap();
    windows.corpora[0].iter().flat_map(|window| window.tokens.iter().copied()).collect()
}

#[test]
fn pieces_of_a_long_text_have_the_tokens_of_the_whole() {
    let folder = folder();
    let text = long_text();
    let file = folder.path().join("long.txt");
    fs::write(&file, &text).unwrap();
    for name in
        ["gpt-2", "youtu", "llama-bpe", "qwen2", "deepseek-llm", "falcon", "tekken", "gpt-4o", "bloom"]
    {
        let model = vocabulary(&with_pre_tokenizer(&folder, name));
        let whole = model.vocab().tokenize(&text, false).unwrap();
        let pieces = cut(&model, &file, usize::MAX);
        assert_eq!(pieces.len(), whole.len(), "{name}");
        assert!(pieces == whole, "{name}");
        assert!(cut(&model, &file, 3) == whole[..3 * 256], "{name}");
    }
}

#[test]
fn runs_without_a_break_are_tokenized_or_refused_by_name() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let model = with_pre_tokenizer(&folder, "youtu");
    let picture: String = (0..90_000_u32)
        .map(|at| {
            char::from(
                b"QRSTUVWXYZabcdefghijkl0123456789+/"[(at.wrapping_mul(2_654_435_761) >> 16) as usize % 34],
            )
        })
        .collect();
    fs::write(at("z.txt"), "Z".repeat(131_072)).unwrap();
    fs::write(at("blanks.txt"), " ".repeat(200_000)).unwrap();
    fs::write(at("notebook.txt"), format!("{{\"image/png\": \"{picture}\"}}")).unwrap();
    for name in ["z.txt", "blanks.txt", "notebook.txt"] {
        succeeds(profile(&model, &at("u.json")).args(["--force", "--chunks", "2", "-f"]).arg(at(name)));
    }
    fs::write(at("endless.txt"), "Z".repeat(5_000_000)).unwrap();
    refuses(
        profile(&model, &at("v.json")).args(["--chunks", "2", "-f"]).arg(at("endless.txt")),
        3,
        &["endless.txt", "without a blank between two words"],
    );
}

/// A model whose vocabulary has no tokens for bytes, and none for what is unknown.
#[test]
fn text_that_the_vocabulary_cannot_spell_is_refused_by_name() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("odd.txt"), "Z \u{301}!\n".repeat(50)).unwrap();
    let mut command = profile(&demo(), &at("u.json"));
    command.args(["--override-kv", "tokenizer.ggml.pre=str:soprano", "-f"]).arg(at("odd.txt"));
    refuses(&mut command, 3, &["odd.txt", "has no tokens for a part of it"]);
}

#[test]
fn folder_of_many_files_is_read_whole() {
    let folder = folder();
    let texts = folder.path().join("texts");
    for part in 0..40 {
        let part = texts.join(part.to_string());
        fs::create_dir_all(&part).unwrap();
        (0..500).for_each(|at| fs::write(part.join(format!("{at}.txt")), "one line\n").unwrap());
    }
    // Seconds of the processor, several times as many as it takes when each file is looked at once.
    let script = "ulimit -t 60; exec \"$0\" -q profile -dev none -t 1 -m \"$1\" -f \"$2\" --dry-run --json";
    let mut command = assert_cmd::Command::new("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_moeslice")]).arg(demo()).arg(&texts);
    let outline: serde_json::Value = serde_json::from_str(&succeeds(&mut command)).unwrap();
    assert_eq!(
        (&outline["rows"][0]["files"], &outline["rows"][0]["windows"]),
        (&20_000.into(), &20_000.into())
    );
}

#[test]
fn text_of_a_pipe_counts_as_that_of_a_file() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(30);
    fs::write(at("file.txt"), &text).unwrap();
    succeeds(profile(&demo(), &at("file.json")).arg("-f").arg(at("file.txt")));
    let layers = json(&at("file.json"))["layers"].to_string().replace("\"file\"", "\"text\"");
    for source in ["text=-", "text=/dev/stdin"] {
        succeeds(
            profile(&demo(), &at("pipe.json")).args(["--force", "-f", source]).write_stdin(text.clone()),
        );
        let usage = json(&at("pipe.json"));
        assert_eq!(usage["layers"].to_string(), layers, "{source}");
        assert_eq!(usage["corpora"][0]["files"][0]["bytes"], text.len());
    }
    let script =
        "exec \"$0\" -q profile -dev none -t 2 -c 128 -m \"$1\" -f text=<(cat \"$2\") -o \"$3\" --force";
    let status = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_moeslice")])
        .args([demo(), at("file.txt"), at("pipe.json")])
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(json(&at("pipe.json"))["layers"].to_string(), layers);
}

#[test]
fn folder_with_an_event_log_is_profiled_without_it() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("source/fixtures")).unwrap();
    fs::write(at("source/main.c"), "int main(void) { return 0; }\n").unwrap();
    fs::write(at("source/fixtures/events.jsonl"), "{\"ts\":1,\"event\":\"x\"}\n").unwrap();
    fs::write(at("source/p.jsonl"), "version https://git-lfs.github.com/spec/v1\noid sha256:00\n").unwrap();
    succeeds(profile(&demo(), &at("u.json")).arg("-f").arg(at("source")));
    assert_eq!(json(&at("u.json"))["corpora"][0]["files"].as_array().unwrap().len(), 1);
    let events = at("source/fixtures/events.jsonl");
    refuses(
        profile(&demo(), &at("v.json")).arg("-f").arg(events),
        3,
        &["events.jsonl, line 1", "\"messages\""],
    );
}

/// Turns between special tokens.
const TEMPLATE: &str = "\
{% for message in messages %}
{% if message.content == 'no' %}{{ raise_exception('never') }}{% endif %}
{{ message.role + ': ' + message.content + '<|endoftext|>' }}
{% endfor %}";

fn talk(folder: &TempDir, texts: &[&str]) -> std::path::PathBuf {
    let path = folder.path().join("talk.jsonl");
    let line = |text: &&str| serde_json::json!([{ "role": "user", "content": text }]).to_string();
    fs::write(&path, texts.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    path
}

#[test]
fn bad_conversations_are_left_out_on_request_and_counted_in_the_usage() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let talk = talk(&folder, &["yes", "no", "no", "yes"]);
    let with = |flags: &[&str]| {
        let mut command = profile(&demo(), &at("u.json"));
        command.args(["--chat-template", TEMPLATE]).args(flags).arg("-f").arg(&talk);
        command
    };
    refuses(
        &mut with(&[]),
        3,
        &["talk.jsonl: 2 of 4 conversations", "line 2", "line 3", "never", "--skip-bad"],
    );
    succeeds(&mut with(&["--skip-bad"]));
    let usage = json(&at("u.json"));
    assert_eq!(usage["corpora"][0]["files"][0]["left_out"], 2);
    assert_eq!(usage["run"]["chat_date"], "2026-01-01");
    succeeds(moeslice().arg("report").arg(at("u.json")));
}

#[test]
fn special_token_spelt_by_a_user_is_plain_text() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let tokens = |text: &str| {
        let talk = talk(&folder, &[text]);
        let mut command = profile(&demo(), &at("u.json"));
        succeeds(command.args(["--force", "--chat-template", TEMPLATE, "-f"]).arg(talk));
        json(&at("u.json"))["corpora"][0]["tokens"].as_u64().unwrap()
    };
    assert!(tokens("a<|endoftext|>b") > tokens("ab") + 2, "the template's own is one token");
}

#[test]
fn dry_run_and_show_text_write_nothing_and_say_what_would_run() {
    let folder = folder();
    let talk = talk(&folder, &["Hi", "Ho"]);
    let with = |flags: &[&str]| {
        let mut command = moeslice();
        command
            .args(["-q", "profile", "-dev", "none", "-c", "128", "--chat-template", TEMPLATE, "-m"])
            .arg(demo());
        succeeds(command.arg("-f").arg(&talk).args(flags))
    };
    let shown = with(&["--show-text"]);
    assert!(shown.contains("conversation 1 <==\nuser: Hi<|endoftext|>\n"), "{shown}");
    assert!(shown.contains("conversation 2 <==\nuser: Ho<|endoftext|>\n"), "{shown}");
    let outline: serde_json::Value = serde_json::from_str(&with(&["--dry-run", "--json"])).unwrap();
    let mut command = profile(&demo(), &folder.path().join("u.json"));
    succeeds(command.args(["--chat-template", TEMPLATE, "-f"]).arg(&talk));
    let usage = json(&folder.path().join("u.json"));
    assert_eq!(outline["rows"][0]["tokens"], usage["corpora"][0]["tokens"]);
    assert_eq!(outline["batch_size"], usage["run"]["batch_size"]);
    assert_eq!((&outline["rows"][0]["windows"], &outline["batches"]), (&2.into(), &1.into()));
    let bos = ["--dry-run", "--json", "--override-kv", "tokenizer.ggml.add_bos_token=bool:true"];
    let with_bos: serde_json::Value = serde_json::from_str(&with(&bos)).unwrap();
    let tokens = |outline: &serde_json::Value| outline["rows"][0]["tokens"].as_u64().unwrap();
    assert_eq!(tokens(&with_bos), tokens(&outline) + 2, "one before each conversation, as in a run");
    let text = with(&["--dry-run"]);
    assert!(text.contains("windows of 128 tokens, in 1 batches") && text.contains("CPU"), "{text}");
    refuses(moeslice().args(["profile", "-f", "t.txt", "-m"]).arg(demo()), 2, &["--output"]);
}
