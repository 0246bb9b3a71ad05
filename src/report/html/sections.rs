//! The sections about a choice: what it costs, how sure it is, what stays, and where all of it comes from.

use super::Content;
use super::escape::{escape, shell_word};
use super::markup::{Row, Table, key, ranges, section};
use crate::evaluate::Figures;
use crate::report::Stability;
use crate::report::wording::{digits, grouped, percent, seen_text, tenths};
use crate::units::ByteCount;
use std::fmt::Write;

impl Content<'_> {
    /// K against size and coverage.
    pub(super) fn cost(&self) -> String {
        let with_sizes = self.page.sizes.is_some();
        let corpora: Vec<&str> = self.report.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
        let apart = corpora.len() > 1;
        let mut head = vec!["K".to_owned()];
        head.extend(with_sizes.then(|| "size".to_owned()));
        head.extend(["mean", "worst layer"].map(str::to_owned));
        head.extend(corpora.iter().filter(|_| apart).map(|name| (*name).to_owned()));
        let worst = |worst: f64, layer: u32| format!("{} ({layer})", percent(worst));
        let row = |k: u32, bytes: Option<u64>, cells: Vec<String>| Row {
            cells: [k.to_string()]
                .into_iter()
                .chain(bytes.map(|bytes| ByteCount(bytes).to_string()))
                .chain(cells)
                .collect(),
            chosen: k == self.k(),
        };
        let of = |coverage: Option<f64>| coverage.map_or("–".into(), percent);
        let rows = match self.page.sizes {
            Some(table) => table
                .rows
                .iter()
                .map(|one| {
                    let mut cells = vec![percent(one.all.mean), worst(one.all.worst, one.all.worst_layer)];
                    cells.extend(
                        corpora
                            .iter()
                            .filter(|_| apart)
                            .map(|name| of(one.corpora.get(*name).map(|c| c.mean))),
                    );
                    row(one.k, Some(one.bytes), cells)
                })
                .collect(),
            None => self
                .report
                .rows
                .iter()
                .map(|one| {
                    let mut cells = vec![percent(one.all.mean), worst(one.all.worst, one.all.worst_layer)];
                    cells.extend(
                        corpora
                            .iter()
                            .filter(|_| apart)
                            .map(|name| of(one.corpora.get(*name).map(|c| c.joint.mean))),
                    );
                    row(one.k, None, cells)
                })
                .collect(),
        };
        let table =
            Table { caption: "Share of the routing that the kept experts cover", head, rows, left: 0 };
        let mut lines = vec![("blue", "routing kept, mean of the layers"), ("orange dashed", "worst layer")];
        if with_sizes {
            lines.push(("grey", "size of the file"));
        }
        let body = format!(
            "{}<figure class=\"needs-script\" id=\"cost-chart\"></figure>\n{}",
            key(&lines),
            table.folded("The numbers as a table")
        );
        let note = match self.page.sizes {
            Some(table) => {
                format!("Experts are ranked by {}. {}", table.score, capital(&table.limits.join("; ")))
            }
            None => {
                "Experts are ranked by how often they were selected. Sizes need the model at hand.".into()
            }
        };
        section("cost", "What each number of experts keeps", &note, &body)
    }

    /// What was measured, for the numbers for which it was.
    pub(super) fn quality(&self) -> String {
        let Some(measured) = self.page.measured.filter(|measured| !measured.rows.is_empty()) else {
            return String::new();
        };
        let names: Vec<&str> = measured.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
        let apart = names.len() > 1;
        let with_kl = measured.rows.iter().any(|row| row.all.kl.is_some());
        let cell = |figures: &Figures| format!("{} ± {}", digits(figures.ppl), digits(figures.ppl_err));
        let mut head: Vec<String> = ["K", "score", "size", "PPL"].map(str::to_owned).to_vec();
        if with_kl {
            head.extend(["KL divergence", "same first choice"].map(str::to_owned));
        }
        head.extend(names.iter().filter(|_| apart).map(|name| format!("PPL of {name}")));
        let rows = measured.rows.iter().map(|row| {
            let mut cells = vec![
                row.k.to_string(),
                row.score.clone().unwrap_or_else(|| "–".into()),
                ByteCount(row.bytes).to_string(),
                cell(&row.all),
            ];
            if with_kl {
                cells.push(
                    row.all
                        .kl
                        .map_or("–".into(), |kl| format!("{} ± {}", digits(kl.kl_mean), digits(kl.kl_err))),
                );
                cells.push(row.all.kl.map_or("–".into(), |kl| percent(kl.same_top)));
            }
            cells.extend(
                names.iter().filter(|_| apart).map(|name| row.corpora.get(*name).map_or("–".into(), cell)),
            );
            Row { cells, chosen: row.k == self.k() }
        });
        let table = Table { caption: "Perplexity and divergence", head, rows: rows.collect(), left: 0 };
        let several = measured.rows.len() > 1;
        let mut body = String::new();
        if several {
            body += "<h3>Perplexity</h3><figure class=\"needs-script\" id=\"ppl-chart\"></figure>\n";
        }
        if several && with_kl {
            body += "<h3>KL divergence from the whole model, nats a token</h3><figure class=\"needs-script\" id=\"kl-chart\"></figure>\n";
        }
        body += &table.html();
        let texts: Vec<String> = measured
            .corpora
            .iter()
            .map(|corpus| {
                let seen = corpus.seen.map_or(String::new(), |seen| format!(", {}", seen_text(seen)));
                format!("{} ({} tokens scored{seen})", corpus.name, grouped(corpus.scored))
            })
            .collect();
        let mut lines = vec![format!("Measured on {}.", texts.join(", "))];
        if let Some(noise) = &measured.noise {
            let kl = noise.all.kl.map_or_else(
                || digits(noise.all.ppl),
                |kl| format!("a KL divergence of {}", digits(kl.kl_mean)),
            );
            lines.push(format!(
                "The model against itself ({}) gives {kl}: smaller differences say nothing.",
                noise.against
            ));
        }
        lines.extend(measured.remarks.iter().cloned());
        for line in lines {
            let _ = writeln!(body, "<p class=\"note\">{}</p>", escape(&line));
        }
        section("quality", "What it costs in quality", "", &body)
    }

    /// Which corpora want the same experts.
    pub(super) fn overlap(&self) -> String {
        let Some(overlap) = &self.report.overlap else { return String::new() };
        let table = Table {
            caption: "Experts among the busiest half of both corpora, over the layers",
            head: ["", "and", "shared, mean", "least (layer)", "by chance", "Jaccard index"]
                .map(str::to_owned)
                .to_vec(),
            rows: overlap
                .rows
                .iter()
                .map(|row| {
                    Row::new(vec![
                        row.a.clone(),
                        row.b.clone(),
                        format!("{:.1} of {}", row.shared_mean, overlap.k),
                        format!("{} ({})", row.shared_least, row.least_layer),
                        format!("{:.1}", row.shared_by_chance),
                        format!("{:.2}", row.jaccard_mean),
                    ])
                })
                .collect(),
            left: 2,
        };
        let note = "Corpora that share more experts than chance would have it go well into one cut; those that share fewer \
                    pull it apart.";
        section("overlap", "Which corpora want the same experts", note, &table.html())
    }

    /// The stability of the choice: that of the planner, where one was at hand.
    pub(super) fn stability_rows(&self) -> Option<&Stability> {
        match self.page.sizes {
            Some(table) => table.stability.as_ref(),
            None => self.report.stability.as_ref(),
        }
    }

    pub(super) fn stability(&self) -> String {
        let heading = "Is it enough text?";
        let Some(stability) = self.stability_rows() else {
            let note = "The usage does not know the halves of the texts apart, so it cannot tell: an older file, an import, or \
                        corpora of a single window.";
            return section("stability", heading, note, "");
        };
        let row = |row: &crate::report::StabilityRow| Row {
            cells: vec![
                row.k.to_string(),
                percent(row.shared_mean),
                format!("{} ({})", percent(row.shared_least), row.least_layer),
                percent(row.coverage_other),
                percent(row.coverage_own),
                format!("{} ({})", tenths(row.lost_most), row.lost_layer),
            ],
            chosen: row.k == self.k(),
        };
        let table = Table {
            caption: "The choices of the two halves of the text, held against each other",
            head: [
                "K",
                "shared",
                "least (layer)",
                "covers of the other half",
                "its own choice",
                "most lost, points (layer)",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows: stability.rows.iter().map(row).collect(),
            left: 0,
        };
        let mut body = String::new();
        if let Some(row) = stability.telling_row(self.k()) {
            let warn = if row.wants_more_text() { " warn" } else { "" };
            let _ = writeln!(body, "<p class=\"sub{warn}\">{}</p>", escape(&row.meaning()));
            let layers = Table {
                caption: &format!("Each layer at K = {}", row.k),
                head: ["layer", "shared", "covers of the other half", "its own choice"]
                    .map(str::to_owned)
                    .to_vec(),
                rows: row
                    .layers
                    .iter()
                    .map(|layer| {
                        Row::new(vec![
                            layer.layer.to_string(),
                            format!("{} of {}", layer.shared, layer.kept),
                            percent(layer.coverage_other),
                            percent(layer.coverage_own),
                        ])
                    })
                    .collect(),
                left: 0,
            }
            .folded("Each layer as a table");
            body += &table.folded("Each number as a table");
            body += &layers;
        } else {
            body += &table.html();
        }
        let note = "The experts are chosen twice, from the first and from the second half of each corpus. Where the choices \
                    cover the other half as well as its own choice does, more text changes little.";
        section("stability", heading, note, &body)
    }

    /// The ids that stay.
    pub(super) fn kept(&self) -> String {
        let Some(plan) = self.page.plan else { return String::new() };
        let row = |(layer, ids): (u32, &[u32])| {
            Row::new(vec![layer.to_string(), ids.len().to_string(), ranges(ids)])
        };
        let table = Table {
            caption: "Experts that stay in each layer, by their ids",
            head: ["layer", "number", "ids"].map(str::to_owned).to_vec(),
            rows: plan.keep.iter().map(row).collect(),
            left: usize::MAX,
        };
        let mut note = format!("Target: {}.", plan.target.clone().unwrap_or_else(|| plan.k.to_string()));
        if let Some(score) = &plan.score {
            note += &format!(" Ranked by {score}.");
        }
        if let Some(blend) = &plan.blend {
            note += &format!(" Shares of the corpora: {blend}.");
        }
        if let Some(pins) = &plan.always_keep {
            note += &format!(" Kept whatever their score: {pins}.");
        }
        if let Some(ties) = plan.ties.filter(|ties| ties.layers > 0) {
            note += &format!(" In {} layers the cut falls between equal scores.", ties.layers);
        }
        section("kept", "What stays", &note, &table.folded("The ids, layer by layer"))
    }

    /// The model, the texts, and how the figures were got.
    pub(super) fn measured(&self) -> String {
        let usage = self.page.usage;
        let hash = |hash: &str| format!("<span class=\"hash\">{}</span>", escape(hash));
        let run = &usage.run;
        let mut facts = vec![
            ("Model", escape(&usage.model.file)),
            ("Fingerprint", hash(&usage.model.fingerprint)),
            ("Routers", hash(&usage.model.router_hash)),
        ];
        for from in &self.report.imported_from {
            facts.push(("Imported", escape(from)));
        }
        if !run.devices.is_empty() {
            facts.push(("Device", escape(&run.devices.join(", "))));
        }
        if run.ctx_size > 0 {
            let text = format!(
                "{} tokens; batches of {}, {} at once",
                run.ctx_size, run.batch_size, run.ubatch_size
            );
            facts.push(("Windows", text));
        }
        if run.wall_seconds > 0.0 {
            facts.push(("Time", format!("{:.1} s", run.wall_seconds)));
        }
        if run.merged_from.len() > 1 {
            facts.push(("Merged", format!("from {} runs", run.merged_from.len())));
        }
        let llama = run
            .llama_cpp
            .as_ref()
            .map_or_else(String::new, |version| format!(", llama.cpp {}", escape(version)));
        facts.push(("Versions", format!("moeslice {}{llama}", escape(&run.moeslice))));
        let facts: String =
            facts.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>\n")).collect();
        let corpora = Table {
            caption: "The corpora",
            head: ["corpus", "tokens", "files", "SHA-256"].map(str::to_owned).to_vec(),
            rows: usage
                .corpora
                .iter()
                .map(|corpus| {
                    let short: String = corpus.sha256().chars().take(16).collect();
                    Row::new(vec![
                        corpus.name.clone(),
                        grouped(corpus.tokens),
                        corpus.files.len().to_string(),
                        short + "…",
                    ])
                })
                .collect(),
            left: usize::MAX,
        };
        let files =
            usage.corpora.iter().flat_map(|corpus| corpus.files.iter().map(move |file| (corpus, file)));
        let files = Table {
            caption: "The files",
            head: ["corpus", "file", "bytes", "SHA-256"].map(str::to_owned).to_vec(),
            rows: files
                .take(FILES)
                .map(|(corpus, file)| {
                    Row::new(vec![
                        corpus.name.clone(),
                        file.path.clone(),
                        grouped(file.bytes),
                        file.sha256.clone(),
                    ])
                })
                .collect(),
            left: usize::MAX,
        };
        let count: usize = usage.corpora.iter().map(|corpus| corpus.files.len()).sum();
        let first =
            if count > FILES { format!("The first {FILES} of {count} files") } else { "Each file".into() };
        let body = format!("<dl class=\"facts\">{facts}</dl>\n{}{}", corpora.html(), files.folded(&first));
        section("measured", "What was counted", "", &body)
    }

    /// The command line that made the page.
    pub(super) fn command(&self) -> String {
        let words: Vec<String> = self.page.command.iter().map(|word| shell_word(word)).collect();
        let body = format!(
            "<pre id=\"command\">{}</pre>\n<button type=\"button\" id=\"copy\" class=\"needs-script\">Copy</button>\n<p class=\"note\">{}</p>\n",
            escape(&words.join(" ")),
            escape(&self.report.limits)
        );
        section("reproduce", "How to make this again", "", &body)
    }
}

/// Files that the page lists; the document in it has them all.
const FILES: usize = 400;

/// With a capital letter.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect::<String>() + ".")
}
