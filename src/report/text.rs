//! The reports as text.

use super::table::{fitting, plain};
use super::wording::{digits, grouped, layers, paragraph, percent, short, tenths};
use super::{Overlap, PlanTable, Stability, TextStyle, UsageReport};
use crate::evaluate::Evaluation;
use crate::plan::Coverage;
use crate::units::ByteCount;
use std::fmt;

/// Columns between two columns.
const GAP: usize = 2;

/// A table of coverages, a column for each of `names`, in as many tables as their width needs. The columns `fixed`
/// (header, cells) stand before them in every table; `cells` has a row for each of theirs.
fn coverages(
    style: &TextStyle,
    fixed: &[(&str, Vec<String>)],
    names: &[&str],
    cells: &[Vec<Option<Coverage>>],
) -> String {
    let layer = |coverage: &Coverage| format!("({})", coverage.worst_layer);
    let layer_width =
        cells.iter().flatten().flatten().map(|coverage| layer(coverage).len()).max().unwrap_or(0);
    let cell = |coverage: &Option<Coverage>| match coverage {
        Some(c) => format!("{:>5} {:>5} {:>layer_width$}", tenths(c.mean), tenths(c.worst), layer(c)),
        None => "-".into(),
    };
    let cell_width = 5 + 1 + 5 + 1 + layer_width;
    let width = |(header, cells): &(&str, Vec<String>)| {
        GAP + cells.iter().map(String::len).max().unwrap_or(0).max(header.len())
    };
    let left: usize = fixed.iter().map(width).sum();
    let a_table = ((style.width + GAP).saturating_sub(left) / (cell_width + GAP)).max(1);
    let tables = (0..names.len()).step_by(a_table).map(|from| {
        let part = from..names.len().min(from + a_table);
        let short: Vec<String> = names[part.clone()].iter().map(|name| short(name, cell_width)).collect();
        let header: Vec<&str> =
            fixed.iter().map(|(header, _)| *header).chain(short.iter().map(String::as_str)).collect();
        let row = |(at, cells): (usize, &Vec<Option<Coverage>>)| {
            fixed
                .iter()
                .map(|(_, column)| column[at].clone())
                .chain(cells[part.clone()].iter().map(cell))
                .collect()
        };
        style.table(plain(&header, &cells.iter().enumerate().map(row).collect::<Vec<Vec<String>>>(), 0))
    });
    tables.collect::<Vec<_>>().join("\n")
}

impl fmt::Display for UsageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&TextStyle::default()))
    }
}

impl UsageReport {
    /// The report as text.
    pub fn text(&self, style: &TextStyle) -> String {
        let prose = |text: &str| paragraph(text, style.prose());
        let model = &self.model;
        let mut text = prose(&format!(
            "{}: {}, {} of {} experts, {} used for a token",
            model.file,
            model.architecture,
            layers(model.layers),
            model.n_expert,
            model.n_expert_used
        ));
        for from in &self.imported_from {
            text += &prose(&format!("Imported: {from}"));
        }
        let corpora: Vec<String> =
            self.corpora.iter().map(|corpus| format!("{} {}", corpus.name, grouped(corpus.tokens))).collect();
        text += &prose(&format!("Tokens: {}", corpora.join(", ")));
        text += &self.coverage_tables(style);
        if let Some((bars, least)) = style.sparkline(&self.enough.layers) {
            let k = self.enough.k;
            let line = format!("Coverage of each layer at K = {k}, from {} to 100%:", percent(least));
            text += &format!("\n{}\n{bars}", prose(&line));
        }
        text += &format!("\n{}\n\n", style.heading("How uneven the layers are, all corpora together:"));
        text += &self.layer_table(style);
        text += &format!("\n{}", prose(&self.median_line()));
        if let Some(overlap) = &self.overlap {
            text += &format!("\n{}", overlap.text(style));
        }
        if let Some(stability) = &self.stability {
            text += &format!("\n{}", stability.text(Some(self.enough.k), style));
        }
        if let Some(measured) = &self.measured {
            text += &format!("\n{}", measured.rows_text(style));
        }
        text + &format!("\n{}{}", prose(&self.meaning), prose(&self.limits))
    }

    fn coverage_tables(&self, style: &TextStyle) -> String {
        let heading = "Share of the routing that the K most used experts of each layer cover, in %:";
        let mut text = format!("\n{}\n", style.heading(heading));
        let prose = |text: &str| paragraph(text, style.prose());
        text += &prose("the mean of the layers, the worst layer, and (its number)");
        let names: Vec<&str> = self.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
        let fixed = [("K", self.rows.iter().map(|row| row.k.to_string()).collect())];
        let apart = names.len() > 1;
        if apart {
            text += &prose("All corpora together by their joint experts, each corpus by its own.");
        }
        text.push('\n');
        let mut columns = vec!["all together"];
        columns.extend(names.iter().filter(|_| apart));
        let cells = |with_all: bool, joint: bool| -> Vec<Vec<Option<Coverage>>> {
            let of = |row: &super::CoverageRow, name: &&str| {
                row.corpora.get(*name).map(|corpus| if joint { corpus.joint } else { corpus.own })
            };
            let row = |row: &super::CoverageRow| {
                let all = with_all.then_some(Some(row.all));
                all.into_iter().chain(names.iter().filter(|_| apart).map(|name| of(row, name))).collect()
            };
            self.rows.iter().map(row).collect()
        };
        text += &coverages(style, &fixed, &columns, &cells(true, false));
        if apart {
            let heading = "What the K experts that all corpora together use most cover of each:";
            text += &format!("\n{}\n\n", style.heading(heading));
            text += &coverages(style, &fixed, &columns[1..], &cells(false, true));
        }
        text
    }

    fn layer_table(&self, style: &TextStyle) -> String {
        let rows: Vec<Vec<String>> = self.layers.rows.iter().map(|row| row.cells()).collect();
        fitting(style, &["layer", "tokens", "max/min", "std/mean", "dead", "entropy (bits)"], &rows, (1, 0))
    }
}

impl Overlap {
    pub(super) fn text(&self, style: &TextStyle) -> String {
        let k = self.k;
        let heading = format!("Experts that are among the {k} most used of both corpora, over the layers:");
        let mut text = format!("{}\n\n", style.heading(&heading));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                vec![
                    short(&row.a, 16),
                    short(&row.b, 16),
                    format!("{:.1}", row.shared_mean),
                    format!("{} ({})", row.shared_least, row.least_layer),
                    format!("{:.1}", row.shared_by_chance),
                    format!("{:.2}", row.jaccard_mean),
                ]
            })
            .collect();
        text += &fitting(style, &["", "", "mean", "least (layer)", "by chance", "Jaccard"], &rows, (2, 2));
        if let (Some(most), Some(least)) =
            (self.rows.first(), self.rows.last().filter(|_| self.rows.len() > 1))
        {
            let line = format!(
                "{} and {} want the same experts most, {} and {} least.",
                most.a, most.b, least.a, least.b
            );
            text += &format!("\n{}", paragraph(&line, style.prose()));
        }
        text
    }
}

impl Stability {
    /// The table, and what the row of `k` means.
    fn text(&self, k: Option<u32>, style: &TextStyle) -> String {
        let heading = "How much half of the text would have changed, in %:";
        let mut text = format!("{}\n", style.heading(heading));
        let columns = "experts that both halves keep, and what the choice of one half covers of the other's routing, \
                       beside what its own covers";
        text += &format!("{}\n", paragraph(columns, style.prose()));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                vec![
                    row.k.to_string(),
                    tenths(row.shared_mean),
                    format!("{} ({})", tenths(row.shared_least), row.least_layer),
                    tenths(row.coverage_other),
                    tenths(row.coverage_own),
                    format!("{} ({})", tenths(row.lost_most), row.lost_layer),
                ]
            })
            .collect();
        let header = ["K", "shared", "least (layer)", "other's", "own", "most lost (layer)"];
        text += &fitting(style, &header, &rows, (1, 0));
        if let Some(row) = k.and_then(|k| self.telling_row(k)) {
            text += &format!("\n{}", paragraph(&row.meaning(), style.prose()));
        }
        text
    }
}

impl Evaluation {
    fn rows_text(&self, style: &TextStyle) -> String {
        let mut text = format!("{}\n\n", style.heading("What was measured of the model:"));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let kl = row.all.kl.map(|kl| (digits(kl.kl_mean), digits(kl.kl_err)));
                let (kl, kl_err) = kl.unwrap_or_else(|| ("-".into(), "-".into()));
                vec![
                    row.score.clone().unwrap_or_else(|| "-".into()),
                    row.k.to_string(),
                    ByteCount(row.bytes).to_string(),
                    digits(row.all.ppl),
                    digits(row.all.ppl_err),
                    kl,
                    kl_err,
                ]
            })
            .collect();
        text += &fitting(style, &["score", "K", "size", "PPL", "±", "KL", "±"], &rows, (2, 1));
        let corpora: Vec<&str> = self.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
        text + &format!("\n{}", paragraph(&format!("Measured on {}.", corpora.join(", ")), style.prose()))
    }
}

impl fmt::Display for PlanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(&TextStyle::default()))
    }
}

impl PlanTable {
    /// The table as text.
    pub fn text(&self, style: &TextStyle) -> String {
        let prose = |text: &str| paragraph(text, style.prose());
        let blend =
            if self.blend == "tokens" { String::new() } else { format!(", corpora blended {}", self.blend) };
        let mut text = prose(&format!(
            "Kept by {}{blend}. Share of the routing that the kept experts cover, in %: the mean of the layers, the worst \
             layer, and (its number)",
            self.score
        ));
        text.push('\n');
        let apart = self.corpora.len() > 1;
        let names: Vec<&str> = ["all together"]
            .into_iter()
            .chain(self.corpora.iter().map(String::as_str).filter(|_| apart))
            .collect();
        let fixed = [
            ("K", self.rows.iter().map(|row| row.k.to_string()).collect()),
            ("size", self.rows.iter().map(|row| ByteCount(row.bytes).to_string()).collect()),
        ];
        let cells: Vec<Vec<Option<Coverage>>> = self
            .rows
            .iter()
            .map(|row| {
                let corpora =
                    self.corpora.iter().filter(|_| apart).map(|name| row.corpora.get(name).copied());
                [Some(row.all)].into_iter().chain(corpora).collect()
            })
            .collect();
        text += &coverages(style, &fixed, &names, &cells);
        text.push('\n');
        if let Some(stability) = &self.stability {
            text += &stability.text(None, style);
            text.push('\n');
        }
        for line in &self.limits {
            text += &prose(line);
        }
        let tied =
            self.rows.iter().filter(|row| row.ties > 0).map(|row| row.k.to_string()).collect::<Vec<_>>();
        if !tied.is_empty() {
            let line =
                format!("The cut falls between equal scores in some layers at K = {}.", tied.join(", "));
            text += &prose(&line);
        }
        text
    }
}
