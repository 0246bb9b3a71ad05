//! The section about what was counted: the model, the texts, and how the figures were got.

use super::Content;
use crate::page::markup::{Row, Table, section};
use crate::page::origin::{Facts, files};
use crate::report::wording::grouped;

impl Content<'_> {
    pub(super) fn counted(&self) -> String {
        let usage = self.page.usage;
        let run = &usage.run;
        let mut facts = Facts::default();
        facts.add_profiled("Model", &usage.model);
        for from in &self.report.imported_from {
            facts.add("Imported", from);
        }
        facts.add("Device", &run.devices.join(", "));
        if run.ctx_size > 0 {
            let text = format!(
                "{} tokens; batches of {}, {} at once",
                run.ctx_size, run.batch_size, run.ubatch_size
            );
            facts.add("Windows", &text);
        }
        if run.wall_seconds > 0.0 {
            facts.add("Time", &format!("{:.1} s", run.wall_seconds));
        }
        if run.merged_from.len() > 1 {
            facts.add("Merged", &format!("from {} runs", run.merged_from.len()));
        }
        facts.add_versions(&run.moeslice, run.llama_cpp.as_deref());
        let row = |corpus: &crate::usage::Corpus| {
            let short: String = corpus.sha256().chars().take(16).collect();
            let files = corpus.files.len().to_string();
            Row::new(vec![corpus.name.clone(), grouped(corpus.tokens), files, short + "…"])
        };
        let corpora = Table {
            caption: "The corpora",
            head: ["corpus", "tokens", "files", "SHA-256"].map(str::to_owned).to_vec(),
            rows: usage.corpora.iter().map(row).collect(),
            left: usize::MAX,
        };
        let files = files(usage.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.files.as_slice())));
        let body = [facts.html(), corpora.html(), files].concat();
        section("counted", "What was counted", "", &body)
    }
}
