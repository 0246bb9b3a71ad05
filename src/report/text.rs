//! The reports as text.

use super::table::plain;
use super::wording::{WIDTH, grouped, paragraph, ratio, short, tenths};
use super::{Overlap, PlanTable, UsageReport};
use crate::plan::Coverage;
use crate::units::ByteCount;
use std::fmt;

/// Columns between two columns.
const GAP: usize = 2;

/// A table of coverages, a column for each of `names`, in as many tables as their width needs. The columns `fixed`
/// (header, cells) stand before them in every table; `cells` has a row for each of theirs.
fn coverages(fixed: &[(&str, Vec<String>)], names: &[&str], cells: &[Vec<Option<Coverage>>]) -> String {
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
    let a_table = ((WIDTH + GAP).saturating_sub(left) / (cell_width + GAP)).max(1);
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
        plain(&header, &cells.iter().enumerate().map(row).collect::<Vec<Vec<String>>>(), 0)
    });
    tables.collect::<Vec<_>>().join("\n")
}

impl fmt::Display for UsageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = &self.model;
        let line = format!(
            "{}: {}, {} layers of {} experts, {} used for a token",
            model.file, model.architecture, model.layers, model.n_expert, model.n_expert_used
        );
        write!(f, "{}", paragraph(&line))?;
        for from in &self.imported_from {
            write!(f, "{}", paragraph(&format!("Imported: {from}")))?;
        }
        let corpora: Vec<String> =
            self.corpora.iter().map(|corpus| format!("{} {}", corpus.name, grouped(corpus.tokens))).collect();
        write!(f, "{}", paragraph(&format!("Tokens: {}", corpora.join(", "))))?;

        writeln!(f, "\nShare of the routing that the K most used experts of each layer cover, in %:")?;
        writeln!(f, "the mean of the layers, the worst layer, and (its number)")?;
        let names: Vec<&str> = self.corpora.iter().map(|corpus| corpus.name.as_str()).collect();
        let fixed = [("K", self.rows.iter().map(|row| row.k.to_string()).collect())];
        let apart = names.len() > 1;
        if apart {
            writeln!(f, "All corpora together by their joint experts, each corpus by its own.")?;
        }
        writeln!(f)?;
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
        write!(f, "{}", coverages(&fixed, &columns, &cells(true, false)))?;
        if apart {
            writeln!(f, "\nWhat the K experts that all corpora together use most cover of each:\n")?;
            write!(f, "{}", coverages(&fixed, &columns[1..], &cells(false, true)))?;
        }

        writeln!(f, "\nHow uneven the layers are, all corpora together:\n")?;
        write!(f, "{}", self.layer_table())?;
        write!(f, "\n{}", paragraph(&self.median_line()))?;
        if let Some(overlap) = &self.overlap {
            write!(f, "\n{overlap}")?;
        }
        write!(f, "\n{}{}", paragraph(&self.meaning), paragraph(&self.limits))
    }
}

impl UsageReport {
    fn layer_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .layers
            .rows
            .iter()
            .map(|row| {
                let spread = &row.all;
                vec![
                    row.layer.to_string(),
                    grouped(row.n_tokens),
                    spread.max_min_ratio.map_or("∞".into(), ratio),
                    format!("{:.2}", spread.std_mean_ratio),
                    spread.dead_experts.to_string(),
                    format!("{:.2} of {:.2}", spread.entropy_bits, spread.entropy_bits_max),
                ]
            })
            .collect();
        plain(&["layer", "tokens", "max/min", "std/mean", "dead", "entropy (bits)"], &rows, 0)
    }

    fn median_line(&self) -> String {
        let layers = &self.layers;
        let live = ratio(layers.median_max_min_ratio_live);
        let dead = layers.layers_with_dead_experts;
        let median = match layers.median_max_min_ratio {
            Some(median) => format!("Median max/min ratio of the layers: {} (1 is even).", ratio(median)),
            None => "The median max/min ratio of the layers is infinite, by experts never selected.".into(),
        };
        match dead {
            0 => format!("{median} No expert is dead."),
            _ => format!(
                "{median} {dead} of {} layers have dead experts; without those the median is {live}.",
                layers.rows.len()
            ),
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let k = self.k;
        writeln!(f, "Experts that are among the {k} most used of both corpora, over the layers:\n")?;
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
        write!(f, "{}", plain(&["", "", "mean", "least (layer)", "by chance", "Jaccard"], &rows, 2))?;
        if let (Some(most), Some(least)) =
            (self.rows.first(), self.rows.last().filter(|_| self.rows.len() > 1))
        {
            let line = format!(
                "{} and {} want the same experts most, {} and {} least.",
                most.a, most.b, least.a, least.b
            );
            write!(f, "\n{}", paragraph(&line))?;
        }
        Ok(())
    }
}

impl fmt::Display for PlanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blend =
            if self.blend == "tokens" { String::new() } else { format!(", corpora weighed {}", self.blend) };
        let text = format!(
            "Kept by {}{blend}. Share of the routing that the kept experts cover, in %: the mean of the layers, the \
             worst layer, and (its number)",
            self.score
        );
        writeln!(f, "{}", paragraph(&text))?;
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
        writeln!(f, "{}", coverages(&fixed, &names, &cells))?;
        for line in &self.limits {
            write!(f, "{}", paragraph(line))?;
        }
        let tied =
            self.rows.iter().filter(|row| row.ties > 0).map(|row| row.k.to_string()).collect::<Vec<_>>();
        if !tied.is_empty() {
            let text =
                format!("The cut falls between equal scores in some layers at K = {}.", tied.join(", "));
            write!(f, "{}", paragraph(&text))?;
        }
        Ok(())
    }
}
