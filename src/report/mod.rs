//! What a usage and a plan say, as data and as tables.
//!
//! [`UsageReport`] reads a usage alone; [`PlanTable`] holds it against a model. Both serialise to the JSON of
//! `--json` and print as text: in a pipe plain and of at most 80 columns, on a terminal as its [`TextStyle`] says.

mod card;
#[cfg(feature = "cli")]
mod eval_table;
#[cfg(feature = "cli")]
mod inspection;
mod layers;
#[cfg(all(feature = "cli", feature = "llama"))]
mod memory;
mod overlap;
mod plan_table;
#[cfg(feature = "cli")]
mod replay_tables;
mod stability;
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
mod style;
#[cfg(feature = "cli")]
mod table;
#[cfg(feature = "cli")]
mod text;
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) mod wording;

pub use card::Card;
#[cfg(feature = "cli")]
pub use eval_table::{RoutingTable, SweepTable};
#[cfg(feature = "cli")]
pub use inspection::{Inspection, InspectionError};
pub use layers::{LayerRow, LayerTable, Spread};
#[cfg(all(feature = "cli", feature = "llama"))]
pub use memory::MemoryRow;
pub use overlap::{Overlap, OverlapRow};
pub use plan_table::{PlanRow, PlanTable};
#[cfg(feature = "cli")]
pub use replay_tables::{WithFlags as AdviceWithFlags, replay as replay_text};
pub use stability::{Stability, StabilityLayer, StabilityRow};
pub use style::TextStyle;
#[cfg(feature = "cli")]
pub use table::fitting;
pub use wording::{percent, shell_word};

use crate::evaluate::Evaluation;
use crate::moe::KeptExperts;
use crate::plan::{Coverage, covered, over_layers};
use crate::score::{LayerScores, Score};
use crate::usage::{ExpertSums, LayerUsage, Usage};
use serde::Serialize;
use std::collections::BTreeMap;

/// The worst layer must keep this share of its routing for a K that the report points at.
const POINTED_AT: f64 = 0.95;

/// How the routing of a usage is spread over the experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsageReport {
    /// The model that was profiled.
    pub model: ReportModel,
    /// Where figures were taken from that moeslice did not count itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imported_from: Vec<String>,
    /// The corpora, in the order of the usage.
    pub corpora: Vec<ReportCorpus>,
    /// What the most used experts cover, by their number.
    pub rows: Vec<CoverageRow>,
    /// The least number of experts that the report finds enough.
    pub enough: Enough,
    /// How uneven each layer is.
    pub layers: LayerTable,
    /// Which corpora want the same experts; absent with fewer than two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Whether half of the text would have chosen the same experts; absent where the usage does not know its halves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<Stability>,
    /// What was measured, where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<Evaluation>,
    /// What the table means for a choice of K.
    pub meaning: String,
    /// What it cannot know.
    pub limits: String,
}

/// The model of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportModel {
    /// File name.
    pub file: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Layers that were counted.
    pub layers: usize,
    /// Experts of a layer, of the largest where they differ.
    pub n_expert: u32,
    /// Experts selected for a token.
    pub n_expert_used: u32,
}

/// A corpus of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReportCorpus {
    /// Its name.
    pub name: String,
    /// Tokens that were profiled.
    pub tokens: u64,
}

/// What the `k` most used experts of each layer cover.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoverageRow {
    /// Experts of each layer; a layer that has fewer is whole.
    pub k: u32,
    /// All corpora together, by the experts that they use most together.
    #[serde(flatten)]
    pub all: Coverage,
    /// Each corpus apart, by name.
    pub corpora: BTreeMap<String, CorpusCoverage>,
}

/// The least number of experts that leaves every layer 95 % of the routing of all corpora together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Enough {
    /// Experts of each layer.
    pub k: u32,
    /// What they cover.
    #[serde(flatten)]
    pub all: Coverage,
    /// What they cover of each layer that routed tokens.
    #[serde(skip)]
    pub layers: Vec<f64>,
}

/// What `k` experts cover of one corpus.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CorpusCoverage {
    /// By the experts that this corpus uses most.
    #[serde(flatten)]
    pub own: Coverage,
    /// By the experts that all corpora use most together: what a cut for all of them leaves to this one.
    pub joint: Coverage,
}

/// The experts of each layer, the most used first.
struct Rankings(BTreeMap<u32, Vec<u32>>);

impl Rankings {
    /// Ranks by the sums that `pick` takes from a layer; layers without tokens are left out.
    fn by(usage: &Usage, pick: &dyn Fn(&LayerUsage) -> Option<&ExpertSums>) -> Rankings {
        let rank = |layer: &LayerUsage| {
            let sums = pick(layer).filter(|sums| sums.n_tokens > 0)?;
            Some((layer.layer, LayerScores::of(sums, Score::Frequency)?.ranking()))
        };
        Rankings(usage.layers.iter().filter_map(rank).collect())
    }

    fn top(&self, k: u32) -> KeptExperts {
        let first = |ids: &Vec<u32>| ids.iter().take(k as usize).copied().collect();
        self.0.iter().map(|(&layer, ids)| (layer, first(ids))).collect()
    }
}

/// The numbers of experts that tables show: eighths of `n` up to the half, sixteenths above, none below `used`.
pub fn steps(n: u32, used: u32) -> Vec<u32> {
    let sixteenths = [2u64, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    let mut steps: Vec<u32> = sixteenths
        .iter()
        .map(|part| (u64::from(n) * part).div_ceil(16) as u32)
        .filter(|&k| k >= used)
        .collect();
    steps.dedup();
    steps
}

impl UsageReport {
    /// Reads a usage that [`Usage::check`] holds for; `None` when nothing was routed in it.
    pub fn new(usage: &Usage) -> Option<UsageReport> {
        let model = &usage.model;
        let ranked = Ranked::new(usage);
        let mut ks = steps(model.n_expert, model.n_expert_used);
        let rows: Option<Vec<CoverageRow>> = ks.iter().map(|&k| ranked.row(k)).collect();
        let enough = ranked.enough()?;
        let place = ks.partition_point(|&k| k < enough.k);
        if ks.get(place) != Some(&enough.k) {
            ks.insert(place, enough.k);
        }
        Some(UsageReport {
            model: ReportModel {
                file: model.file.clone(),
                architecture: model.architecture.clone(),
                layers: usage.layers.len(),
                n_expert: model.n_expert,
                n_expert_used: model.n_expert_used,
            },
            imported_from: [&usage.run]
                .into_iter()
                .chain(&usage.run.merged_from)
                .filter_map(|run| run.imported_from.clone())
                .collect(),
            corpora: usage
                .corpora
                .iter()
                .map(|corpus| ReportCorpus { name: corpus.name.clone(), tokens: corpus.tokens })
                .collect(),
            rows: rows?,
            layers: LayerTable::new(usage),
            overlap: Overlap::new(usage, &ranked.corpora),
            stability: Stability::by_frequency(usage, &ks),
            meaning: ranked.meaning(&enough)?,
            enough,
            measured: None,
            limits:
                "The table counts selections. It cannot know what the lost share costs in quality, nor what \
                     texts unlike these need (another language, another task): measure a cut, with \
                     moeslice eval, also on a text that was not profiled."
                    .into(),
        })
    }
}

/// A usage with its experts ranked, for all corpora together and for each.
struct Ranked<'a> {
    usage: &'a Usage,
    all: Rankings,
    corpora: Vec<(&'a str, Rankings)>,
}

impl<'a> Ranked<'a> {
    fn new(usage: &'a Usage) -> Ranked<'a> {
        let of = |name: &'a str| Rankings::by(usage, &|layer| layer.corpora.get(name));
        Ranked {
            usage,
            all: Rankings::by(usage, &|layer| Some(&layer.total)),
            corpora: usage.corpora.iter().map(|corpus| (corpus.name.as_str(), of(&corpus.name))).collect(),
        }
    }

    fn row(&self, k: u32) -> Option<CoverageRow> {
        let keep = self.all.top(k);
        let corpora = self.corpora.iter().filter_map(|(name, ranking)| {
            let pick = |layer: &'a LayerUsage| layer.corpora.get(*name);
            let own = over_layers(self.usage, &ranking.top(k), &pick)?;
            let joint = over_layers(self.usage, &keep, &pick)?;
            Some(((*name).to_owned(), CorpusCoverage { own, joint }))
        });
        Some(CoverageRow {
            k,
            all: over_layers(self.usage, &keep, &|layer| Some(&layer.total))?,
            corpora: corpora.collect(),
        })
    }

    /// The row of the smallest K from `low` to `high` that reaches something, where a larger K reaches no less.
    fn least_row(
        &self,
        mut low: u32,
        mut high: u32,
        reached: &dyn Fn(&CoverageRow) -> bool,
    ) -> Option<CoverageRow> {
        // A usage can name any number of experts: trying each would never end.
        while low < high {
            let middle = low + (high - low) / 2;
            if reached(&self.row(middle)?) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.row(low)
    }

    /// The smallest K that leaves every layer the share that the report points at.
    fn enough(&self) -> Option<Enough> {
        let model = &self.usage.model;
        let least = model.n_expert_used.max(1);
        let row = self.least_row(least, model.n_expert, &|row| row.all.worst >= POINTED_AT)?;
        let keep = self.all.top(row.k);
        let share = |layer: &LayerUsage| covered(&layer.total, keep.layer(layer.layer));
        Some(Enough { k: row.k, all: row.all, layers: self.usage.layers.iter().filter_map(share).collect() })
    }

    /// What the least number that is enough means, and what half of the experts lose.
    fn meaning(&self, enough: &Enough) -> Option<String> {
        let model = &self.usage.model;
        let n = model.n_expert;
        let least = model.n_expert_used.max(1);
        let percent = POINTED_AT * 100.0;
        let mut text = if enough.k == n {
            format!("Only all {n} experts leave every layer {percent}% of its routing: any cut costs")
        } else {
            format!(
                "K = {} of {n} is the least that leaves every layer {percent}% of its routing (mean {}, worst {} in \
                 layer {})",
                enough.k,
                wording::percent(enough.all.mean),
                wording::percent(enough.all.worst),
                enough.all.worst_layer
            )
        };
        if self.corpora.len() > 1 && enough.k < n {
            let joint =
                |row: &CoverageRow| row.corpora.values().all(|corpus| corpus.joint.worst >= POINTED_AT);
            text += &format!(
                ", K = {} the least that leaves it in every corpus",
                self.least_row(least, n, &joint)?.k
            );
        }
        let half = n.div_ceil(2);
        if n > 1 && half >= least {
            let half = self.row(half)?;
            text += &format!(
                "; with half of the experts layer {} would lose {} of its routing",
                half.all.worst_layer,
                wording::percent_up(1.0 - half.all.worst)
            );
        }
        Some(text + ".")
    }
}

#[cfg(test)]
mod tests;
