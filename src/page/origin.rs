//! Where the figures of a page come from: the model, the texts, the run, and the command line.

use super::escape::escape;
use super::markup::{Row, Table, section};
use crate::report::shell_word;
use crate::report::wording::grouped;
use crate::usage::{CorpusFile, ProfiledModel};
use std::fmt::Write;

/// Files that a page lists; the document in it has them all.
const FILES: usize = 400;

/// Names and what is known of them.
#[derive(Default)]
pub(super) struct Facts(String);

impl Facts {
    /// Adds a line; an empty text is no fact.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.0, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(text));
        }
    }

    /// Adds a digest, in small letters of one width.
    pub(super) fn add_hash(&mut self, name: &str, hash: &str) {
        let _ = writeln!(
            self.0,
            "<dt>{}</dt><dd><span class=\"hash\">{}</span></dd>",
            escape(name),
            escape(hash)
        );
    }

    /// Adds the file of a model with what tells it from others: fingerprint and hash of the routers.
    pub(super) fn add_model(&mut self, name: &str, [file, fingerprint, router_hash]: [&str; 3]) {
        self.add(name, file);
        self.add_hash("Fingerprint", fingerprint);
        self.add_hash("Routers", router_hash);
    }

    /// Adds the model that a document is about.
    pub(super) fn add_profiled(&mut self, name: &str, model: &ProfiledModel) {
        self.add_model(name, [&model.file, &model.fingerprint, &model.router_hash]);
    }

    /// Adds the versions of both programs.
    pub(super) fn add_versions(&mut self, moeslice: &str, llama_cpp: Option<&str>) {
        let llama = llama_cpp.map_or_else(String::new, |version| format!(", llama.cpp {version}"));
        self.add("Versions", &format!("moeslice {moeslice}{llama}"));
    }

    pub(super) fn html(&self) -> String {
        format!("<dl class=\"facts\">{}</dl>\n", self.0)
    }
}

/// Each file of some corpora, by the names of those, behind a line that opens the table.
pub(super) fn files<'a>(corpora: impl Iterator<Item = (&'a str, &'a [CorpusFile])> + Clone) -> String {
    let count: usize = corpora.clone().map(|(_, files)| files.len()).sum();
    if count == 0 {
        return String::new();
    }
    let row = |(name, file): (&str, &CorpusFile)| {
        Row::new(vec![name.to_owned(), file.path.clone(), grouped(file.bytes), file.sha256.clone()])
    };
    let each = corpora.flat_map(|(name, files)| files.iter().map(move |file| (name, file)));
    let table = Table {
        caption: "The files",
        head: ["corpus", "file", "bytes", "SHA-256"].map(str::to_owned).to_vec(),
        rows: each.take(FILES).map(row).collect(),
        left: usize::MAX,
    };
    let summary =
        if count > FILES { format!("The first {FILES} of {count} files") } else { "Each file".into() };
    table.folded(&summary)
}

/// The command line that made the page.
pub(super) fn command(command: &[String], note: &str) -> String {
    let words: Vec<String> = command.iter().map(|word| shell_word(word)).collect();
    let body = format!(
        "<pre id=\"command\">{}</pre>\n<button type=\"button\" id=\"copy\" class=\"needs-script\">Copy</button>\n<p class=\"note\">{}</p>\n",
        escape(&words.join(" ")),
        escape(note)
    );
    section("reproduce", "How to make this again", "", &body)
}
