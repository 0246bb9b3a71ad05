//! Conversations in the manner of data sets, rendered with templates in the manner of many families of models. The golden
//! files hold what llama.cpp makes of them (`scripts/compare chats` checks that); `UPDATE_GOLDEN=1` writes them again.

#![cfg(feature = "llama")]

use moeslice::corpus::{ChatReader, ChatTemplate};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chats")
}

/// All conversations as the template in `path` renders them, or the word of its refusal.
fn rendered(path: &Path, conversations: &str) -> String {
    let template = fs::read_to_string(path).unwrap();
    let reader = ChatReader {
        template: Some(ChatTemplate { text: template, origin: "the template".into() }),
        bos: "<s>".into(),
        eos: "</s>".into(),
        ..ChatReader::default()
    };
    let mut text = String::new();
    for (at, line) in conversations.lines().enumerate() {
        match reader.read(Path::new("conversation"), line) {
            Ok(read) => {
                let chat = &read.chats[0];
                writeln!(text, "== {}\n{}", at + 1, chat.text).unwrap();
                assert!(chat.inputs.iter().all(|input| chat.text.is_char_boundary(input.end)));
            }
            Err(error) => writeln!(text, "== {} is refused\n{error}", at + 1).unwrap(),
        }
    }
    text
}

#[test]
fn conversations_render_as_in_llama_cpp() {
    let conversations = fs::read_to_string(folder().join("conversations.jsonl")).unwrap();
    let mut templates: Vec<PathBuf> =
        fs::read_dir(folder().join("templates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    templates.sort();
    assert!(templates.len() >= 20 && conversations.lines().count() == 12);
    for template in templates {
        let golden = folder().join("golden").join(template.with_extension("txt").file_name().unwrap());
        let found = rendered(&template, &conversations);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(golden.parent().unwrap()).unwrap();
            fs::write(&golden, &found).unwrap();
        }
        let wanted = fs::read_to_string(&golden).unwrap();
        assert_eq!(found, wanted, "{}", template.display());
    }
}
