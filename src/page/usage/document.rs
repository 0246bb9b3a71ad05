//! The document that is embedded in a page.

use super::Content;
use super::colour::maps;
use crate::page::frame::SCHEMA;
use crate::plan::Coverage;
use crate::usage::{ExpertSums, Usage};
use serde::Serialize;
use serde_json::{Value, json};

/// One candidate in the chart of what each number costs.
#[derive(Serialize)]
struct CostRow {
    k: u32,
    #[serde(flatten)]
    all: Coverage,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Content<'_> {
    /// The usage to the unit, with rounded gate weights where they are wanted.
    pub(super) fn document(&self, weights: bool) -> Value {
        let rows: Vec<CostRow> = match self.page.sizes {
            Some(table) => table
                .rows
                .iter()
                .map(|row| CostRow { k: row.k, all: row.all, bytes: Some(row.bytes) })
                .collect(),
            None => {
                self.report.rows.iter().map(|row| CostRow { k: row.k, all: row.all, bytes: None }).collect()
            }
        };
        let [light, dark] = maps();
        json!({
            "schema": SCHEMA,
            "usage": slim(self.page.usage, weights),
            "rows": rows,
            "chosen": self.k(),
            "plan": self.page.plan,
            "measured": self.page.measured,
            "colours": { "light": light, "dark": dark },
        })
    }
}

/// The usage with its counts as they are and gate weights rounded to thousandths, or without; a usage file still, but
/// for the halves of the texts.
fn slim(usage: &Usage, weights: bool) -> Usage {
    let mut usage = usage.clone();
    for layer in &mut usage.layers {
        layer.half = None;
        if !weights || layer.total.weight.is_none() {
            layer.total.weight = None;
            layer.corpora.values_mut().for_each(|sums| sums.weight = None);
            continue;
        }
        layer.corpora.values_mut().for_each(round);
        // What was rounded has to add up again.
        let mut total = ExpertSums::zero(layer.total.count.len(), true);
        if layer.corpora.values().try_for_each(|sums| total.add(sums)).is_some() {
            round(&mut total);
            layer.total.weight = total.weight;
        }
    }
    usage
}

fn round(sums: &mut ExpertSums) {
    for weight in sums.weight.iter_mut().flatten() {
        let rounded = (*weight * 1000.0).round() / 1000.0;
        if rounded.is_finite() {
            *weight = rounded;
        }
    }
}
