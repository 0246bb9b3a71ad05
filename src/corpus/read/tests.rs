use super::*;
use std::ffi::OsStr;
use std::process::Command;

fn read(sources: &[&str]) -> (Result<Vec<CorpusText>, CorpusError>, Vec<String>) {
    let sources: Vec<TextSource> =
        sources.iter().map(|text| TextSource::parse(OsStr::new(text)).unwrap()).collect();
    let mut remarks = Vec::new();
    let result = read_corpora(&sources, &ChatReader::default(), &mut |remark| remarks.push(remark));
    (result, remarks)
}

fn text_of(text: &Text) -> String {
    let Content::Plain(text) = &text.content else { panic!("a plain text") };
    text.clone().into_text().unwrap()
}

#[test]
fn a_folder_is_read_in_order_and_what_is_no_text_is_remarked() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    fs::create_dir_all(corpus.join("b")).unwrap();
    fs::write(corpus.join("z.txt"), "last").unwrap();
    fs::write(corpus.join("a.txt"), "first").unwrap();
    fs::write(corpus.join("b/inner.md"), "middle").unwrap();
    fs::write(corpus.join("image.png"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
    fs::write(corpus.join("empty.txt"), "").unwrap();
    fs::write(corpus.join(".hidden"), "no").unwrap();
    let (result, remarks) = read(&[corpus.to_str().unwrap()]);
    let corpora = result.unwrap();
    let paths: Vec<&str> = corpora[0].texts.iter().map(|text| text.file.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "b/inner.md", "z.txt"]);
    assert_eq!(remarks.len(), 2);
    assert!(remarks.iter().any(|remark| remark.contains("image.png")), "{remarks:?}");
}

#[test]
fn jsonl_without_chats_is_passed_over_in_a_folder_and_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("source");
    fs::create_dir_all(corpus.join("fixtures")).unwrap();
    fs::write(corpus.join("main.c"), "int main(void);").unwrap();
    let events = corpus.join("fixtures/events.jsonl");
    fs::write(&events, "{\"ts\":1,\"event\":\"x\"}\n{\"ts\":2,\"event\":\"y\"}\n").unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    fs::write(corpus.join("p.jsonl"), pointer).unwrap();
    let (result, remarks) = read(&[corpus.to_str().unwrap()]);
    assert_eq!(result.unwrap()[0].texts.len(), 1);
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    assert!(remarks.iter().all(|remark| remark.contains("passed over, no chats")), "{remarks:?}");
    let (result, _) = read(&[events.to_str().unwrap()]);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("events.jsonl") && message.contains("\"messages\""), "{message}");
}

#[test]
fn a_named_pipe_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "through a pipe").unwrap()
    });
    let (result, _) = read(&[&format!("pipe={}", pipe.display())]);
    writer.join().unwrap();
    let corpora = result.unwrap();
    assert_eq!(text_of(&corpora[0].texts[0]), "through a pipe");
    assert_eq!(corpora[0].texts[0].file.bytes, 14);
}

#[test]
fn a_text_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.txt");
    fs::write(&file, "text").unwrap();
    let file = file.to_str().unwrap();
    let (result, _) = read(&[file, &format!("again={file}")]);
    assert!(matches!(result, Err(CorpusError::Twice { .. })));
}

#[test]
fn sources_of_one_name_make_one_corpus() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one.txt", "two.txt"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (result, _) = read(&[&format!("dev={}", at("one.txt")), &format!("dev={}", at("two.txt"))]);
    let corpora = result.unwrap();
    assert_eq!(corpora.len(), 1);
    assert_eq!(corpora[0].texts.len(), 2);
}

#[test]
fn an_empty_corpus_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (result, _) = read(&[folder.path().to_str().unwrap()]);
    assert!(matches!(result, Err(CorpusError::Empty { .. })));
    let file = folder.path().join("e.txt");
    fs::write(&file, "").unwrap();
    let (result, _) = read(&[file.to_str().unwrap()]);
    assert!(matches!(result, Err(CorpusError::Empty { .. })));
}
