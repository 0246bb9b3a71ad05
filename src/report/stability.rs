//! How much text is enough: whether each half of the windows would have chosen the same experts.

use super::Rankings;
use super::wording::percent;
use crate::moe::KeptExperts;
use crate::plan::{PlanError, Planner, covered};
use crate::usage::Usage;
use serde::Serialize;

/// From this much of the routing on, lost on average by a choice that saw the other half alone, more text is advised.
const LOST_ON_AVERAGE: f64 = 0.01;

/// The same for a single layer.
const LOST_IN_A_LAYER: f64 = 0.03;

/// What each half of the windows would have kept, held against the other half.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stability {
    /// One row a number of experts, ascending.
    pub rows: Vec<StabilityRow>,
}

/// The choices of the two halves for one number of experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StabilityRow {
    /// Experts of each layer; a layer that has fewer is whole.
    pub k: u32,
    /// Share of the kept experts that both halves choose, mean over the layers.
    pub shared_mean: f64,
    /// The smallest of a layer.
    pub shared_least: f64,
    /// The first layer of the smallest.
    pub least_layer: u32,
    /// Share of one half's routing that the choice of the other half covers, mean over the layers and both ways.
    pub coverage_other: f64,
    /// The share that its own choice covers.
    pub coverage_own: f64,
    /// The most that a layer loses by the choice of the other half, as a share of its routing.
    pub lost_most: f64,
    /// The first such layer.
    pub lost_layer: u32,
    /// The layers one by one; left out of `--json`, which has them in none of its tables.
    #[serde(skip)]
    pub layers: Vec<StabilityLayer>,
}

/// The choices of the two halves in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StabilityLayer {
    /// Index of the block.
    pub layer: u32,
    /// Experts that each half keeps.
    pub kept: usize,
    /// Those that both keep.
    pub shared: usize,
    /// Share of one half's routing that the choice of the other covers, mean of both ways.
    pub coverage_other: f64,
    /// The share that its own choice covers.
    pub coverage_own: f64,
}

impl Stability {
    /// By the experts used most; `None` where the usage does not know its halves apart.
    pub(super) fn by_frequency(usage: &Usage, ks: &[u32]) -> Option<Stability> {
        let halves = usage.halves()?;
        let ranked = halves.each_ref().map(|half| Rankings::by(half, &|layer| Some(&layer.total)));
        let rows =
            ks.iter().map(|&k| StabilityRow::new(&halves, k, &ranked.each_ref().map(|ranked| ranked.top(k))));
        Some(Stability { rows: rows.collect::<Option<_>>()? })
    }

    /// By a planner: its score, blend and pins. `None` where the usage does not know its halves apart, or one of them
    /// lacks what the choice is made from.
    ///
    /// # Errors
    /// When the model cannot keep such a number.
    pub fn by_planner(planner: &Planner<'_>, ks: &[u32]) -> Result<Option<Stability>, PlanError> {
        let Some(halves) = planner.usage().halves() else { return Ok(None) };
        let [Ok(first), Ok(second)] = halves.each_ref().map(|half| planner.with_usage(half)) else {
            return Ok(None);
        };
        let mut rows = Vec::with_capacity(ks.len());
        for &k in ks {
            let kept = [first.choose(k)?.keep, second.choose(k)?.keep];
            rows.extend(StabilityRow::new(&halves, k, &kept));
        }
        Ok(Some(Stability { rows }))
    }

    /// The row of `k`, or, where `k` cuts nothing, that of the largest number that does.
    pub fn telling_row(&self, k: u32) -> Option<&StabilityRow> {
        let last = self.rows.last()?;
        let k = if k == last.k { self.rows.iter().rev().nth(1)?.k } else { k };
        self.rows.iter().find(|row| row.k == k)
    }
}

impl StabilityRow {
    fn new(halves: &[Usage; 2], k: u32, kept: &[KeptExperts; 2]) -> Option<StabilityRow> {
        let of = |layer: u32, half: usize, by: usize| -> Option<f64> {
            covered(&halves[half].layer(layer)?.total, kept[by].layer(layer))
        };
        let mut layers = Vec::with_capacity(halves[0].layers.len());
        for (layer, ids) in kept[0].iter() {
            let (Some(other), Some(_)) = (kept[1].layer(layer), halves[0].layer(layer)) else { continue };
            layers.push(StabilityLayer {
                layer,
                kept: ids.len(),
                shared: ids.iter().filter(|id| other.contains(id)).count(),
                coverage_other: (of(layer, 0, 1)? + of(layer, 1, 0)?) / 2.0,
                coverage_own: (of(layer, 0, 0)? + of(layer, 1, 1)?) / 2.0,
            });
        }
        let shared = |layer: &StabilityLayer| layer.shared as f64 / layer.kept.max(1) as f64;
        let lost = |layer: &StabilityLayer| layer.coverage_own - layer.coverage_other;
        let n = layers.len() as f64;
        let mean = |of: &dyn Fn(&StabilityLayer) -> f64| layers.iter().map(of).sum::<f64>() / n;
        let first = layers.first()?;
        let least =
            layers.iter().fold(first, |least, next| if shared(next) < shared(least) { next } else { least });
        let most = layers.iter().fold(first, |most, next| if lost(next) > lost(most) { next } else { most });
        Some(StabilityRow {
            k,
            shared_mean: mean(&shared),
            shared_least: shared(least),
            least_layer: least.layer,
            coverage_other: mean(&|layer| layer.coverage_other),
            coverage_own: mean(&|layer| layer.coverage_own),
            lost_most: lost(most).max(0.0),
            lost_layer: most.layer,
            layers,
        })
    }

    /// Whether more text would change the cut for the better: half of the text chooses badly for the other half.
    pub fn wants_more_text(&self) -> bool {
        self.coverage_own - self.coverage_other >= LOST_ON_AVERAGE || self.lost_most >= LOST_IN_A_LAYER
    }

    /// What it means, in a sentence or two.
    pub fn meaning(&self) -> String {
        let verdict = if self.wants_more_text() {
            "More text would change the cut: profile more of it"
        } else {
            "More text of the same kind would hardly change what the cut covers"
        };
        format!(
            "At K = {}, the two halves of the text agree on {} of the experts that stay (least in layer {}: {}). The \
             choice of one half covers {} of the other half's routing, whose own choice covers {}. {verdict}.",
            self.k,
            percent(self.shared_mean),
            self.least_layer,
            percent(self.shared_least),
            percent(self.coverage_other),
            percent(self.coverage_own),
        )
    }
}
