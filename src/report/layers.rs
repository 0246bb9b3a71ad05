//! How uneven the routing of each layer is.

use super::wording::{grouped, ratio};
use crate::usage::{ExpertSums, Usage};
use serde::Serialize;
use std::collections::BTreeMap;

/// The layers of a usage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerTable {
    /// Median over the layers of [`Spread::max_min_ratio`], where a layer with a dead expert counts as infinite;
    /// absent when the median is infinite.
    pub median_max_min_ratio: Option<f64>,
    /// Median over the layers of [`Spread::max_min_ratio_live`].
    pub median_max_min_ratio_live: f64,
    /// Layers with an expert that was never selected.
    pub layers_with_dead_experts: usize,
    /// One row a layer that routed tokens.
    pub rows: Vec<LayerRow>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerRow {
    /// Index of the block.
    pub layer: u32,
    /// Experts that it has.
    pub n_expert: usize,
    /// Tokens that it routed.
    pub n_tokens: u64,
    /// All corpora together.
    #[serde(flatten)]
    pub all: Spread,
    /// Each corpus that routed tokens, by name.
    pub corpora: BTreeMap<String, Spread>,
}

impl LayerRow {
    /// What people read of it: layer, tokens, busiest over least, deviation over mean, dead experts, entropy.
    pub(crate) fn cells(&self) -> Vec<String> {
        let spread = &self.all;
        vec![
            self.layer.to_string(),
            grouped(self.n_tokens),
            spread.max_min_ratio.map_or("∞".into(), ratio),
            format!("{:.2}", spread.std_mean_ratio),
            spread.dead_experts.to_string(),
            format!("{:.2} of {:.2}", spread.entropy_bits, spread.entropy_bits_max),
        ]
    }
}

/// How uneven counts are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Largest count over the smallest; 1 when all are equal, absent when the smallest is 0.
    pub max_min_ratio: Option<f64>,
    /// Largest count over the smallest that is not 0.
    pub max_min_ratio_live: f64,
    /// Standard deviation of the counts (of the population) over their mean.
    pub std_mean_ratio: f64,
    /// Experts that were never selected.
    pub dead_experts: usize,
    /// Entropy of the selections, -Σ p log2 p, in bits.
    pub entropy_bits: f64,
    /// The largest possible, log2 of the number of experts.
    pub entropy_bits_max: f64,
}

impl Spread {
    /// The spread of counts; `None` when all are 0.
    pub fn of(sums: &ExpertSums) -> Option<Spread> {
        let max = *sums.count.iter().max().filter(|&&max| max > 0)?;
        let min = *sums.count.iter().min()?;
        let live = *sums.count.iter().filter(|&&count| count > 0).min()?;
        let (n, all) = (sums.count.len() as f64, sums.count.iter().sum::<u64>() as f64);
        let mean = all / n;
        let variance = sums.count.iter().map(|&count| (count as f64 - mean).powi(2)).sum::<f64>() / n;
        let entropy = sums.count.iter().filter(|&&count| count > 0).map(|&count| {
            let p = count as f64 / all;
            -p * p.log2()
        });
        Some(Spread {
            max_min_ratio: (min > 0).then(|| max as f64 / min as f64),
            max_min_ratio_live: max as f64 / live as f64,
            std_mean_ratio: variance.sqrt() / mean,
            dead_experts: sums.count.iter().filter(|&&count| count == 0).count(),
            // A sum of nothing but -1 · 0 is a negative zero.
            entropy_bits: entropy.sum::<f64>().abs(),
            entropy_bits_max: n.log2(),
        })
    }
}

impl LayerTable {
    pub(super) fn new(usage: &Usage) -> LayerTable {
        let rows: Vec<LayerRow> = usage
            .layers
            .iter()
            .filter_map(|layer| {
                let corpora = layer.corpora.iter();
                Some(LayerRow {
                    layer: layer.layer,
                    n_expert: layer.total.count.len(),
                    n_tokens: layer.total.n_tokens,
                    all: Spread::of(&layer.total)?,
                    corpora: corpora
                        .filter_map(|(name, sums)| Some((name.clone(), Spread::of(sums)?)))
                        .collect(),
                })
            })
            .collect();
        let ratios = rows.iter().map(|row| row.all.max_min_ratio.unwrap_or(f64::INFINITY)).collect();
        let live = rows.iter().map(|row| row.all.max_min_ratio_live).collect();
        LayerTable {
            median_max_min_ratio: Some(median(ratios)).filter(|ratio| ratio.is_finite()),
            median_max_min_ratio_live: median(live),
            layers_with_dead_experts: rows.iter().filter(|row| row.all.dead_experts > 0).count(),
            rows,
        }
    }
}

impl super::UsageReport {
    /// The median of the layers, in a sentence or two.
    pub(crate) fn median_line(&self) -> String {
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

/// The middle value, or the mean of the two in the middle; NaN of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
