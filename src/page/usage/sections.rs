//! The sections about a choice: what it costs, how sure it is, and what stays.

use super::Content;
use crate::page::escape::escape;
use crate::page::markup::{Row, Table, key, ranges, section};
use crate::plan::Coverage;
use crate::report::wording::{capital, percent, tenths};
use crate::report::{CoverageRow, PlanRow, Stability};
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
        let row = |k: u32, bytes: Option<u64>, all: &Coverage, mean: &dyn Fn(&str) -> Option<f64>| {
            let worst = format!("{} ({})", percent(all.worst), all.worst_layer);
            let each = corpora.iter().filter(|_| apart).map(|name| mean(name).map_or("–".into(), percent));
            let size = bytes.map(|bytes| ByteCount(bytes).to_string());
            let cells = [k.to_string()].into_iter().chain(size).chain([percent(all.mean), worst]).chain(each);
            Row { cells: cells.collect(), chosen: k == self.k() }
        };
        let rows = match self.page.sizes {
            Some(table) => {
                let of = |one: &PlanRow| {
                    row(one.k, Some(one.bytes), &one.all, &|name| Some(one.corpora.get(name)?.mean))
                };
                table.rows.iter().map(of).collect()
            }
            None => {
                let of = |one: &CoverageRow| {
                    row(one.k, None, &one.all, &|name| Some(one.corpora.get(name)?.joint.mean))
                };
                self.report.rows.iter().map(of).collect()
            }
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
                format!("Experts are ranked by {}. {}", table.score, sentence(&table.limits.join("; ")))
            }
            None => {
                "Experts are ranked by how often they were selected. Sizes need the model at hand.".into()
            }
        };
        section("cost", "What each number of experts keeps", &note, &body)
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
}

/// A sentence of these words, if there are any.
fn sentence(text: &str) -> String {
    if text.is_empty() { String::new() } else { capital(text) + "." }
}
