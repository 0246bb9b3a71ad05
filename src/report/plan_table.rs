//! What every candidate number of experts would cost and cover.

use super::{Stability, steps};
use crate::moe::{Experts, LayerKind};
use crate::plan::{Coverage, PlanError, Planner, SizeOf};
use serde::Serialize;
use std::collections::BTreeMap;

/// The candidates of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlanTable {
    /// Experts of a layer, of the largest where they differ.
    pub n_expert: u32,
    /// What the experts are ranked by.
    pub score: String,
    /// The weights of the corpora: `tokens`, or their shares.
    pub blend: String,
    /// The names of the corpora, in the order of the usage.
    pub corpora: Vec<String>,
    /// One row a candidate, ascending.
    pub rows: Vec<PlanRow>,
    /// Whether half of the text would choose the same experts; absent where the usage does not know its halves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stability: Option<Stability>,
    /// What the model allows, one line each.
    pub limits: Vec<String>,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PlanRow {
    /// Experts that each layer keeps.
    pub k: u32,
    /// Exact bytes of all files that would be written.
    pub bytes: u64,
    /// What the kept experts cover of all corpora together.
    #[serde(flatten)]
    pub all: Coverage,
    /// What they cover of each corpus, by name.
    pub corpora: BTreeMap<String, Coverage>,
    /// Layers in which the cut falls between experts of equal score.
    pub ties: u32,
}

impl PlanTable {
    /// The candidates near the usual steps, or with `every` all that the model allows.
    ///
    /// # Errors
    /// When the experts cannot be chosen, or the size of a file cannot be told.
    pub fn new(planner: &Planner<'_>, size: &SizeOf<'_>, every: bool) -> Result<PlanTable, PlanError> {
        let experts = planner.experts();
        let candidates = if every {
            experts.possible_counts()
        } else {
            let near = steps(experts.n_expert, experts.n_expert_used).into_iter();
            let mut near: Vec<u32> = near.filter_map(|k| experts.next_count(k)).collect();
            near.dedup();
            near
        };
        Self::of(planner, size, candidates)
    }

    /// The candidates that are named, ascending.
    ///
    /// # Errors
    /// As [`PlanTable::new`].
    pub fn of(
        planner: &Planner<'_>,
        size: &SizeOf<'_>,
        candidates: Vec<u32>,
    ) -> Result<PlanTable, PlanError> {
        let experts = planner.experts();
        let mut rows = Vec::with_capacity(candidates.len());
        for k in candidates {
            let choice = match planner.choose(k) {
                Ok(choice) => choice,
                // A larger number may have room for the pins.
                Err(PlanError::PinCount { .. } | PlanError::PinGroup { .. }) => continue,
                Err(error) => return Err(error),
            };
            let coverage = planner.coverage(&choice.keep);
            rows.push(PlanRow {
                k,
                bytes: size(k).map_err(|error| PlanError::Size { k, error })?,
                all: coverage.all,
                corpora: coverage.corpora,
                ties: choice.ties.layers,
            });
        }
        let ks: Vec<u32> = rows.iter().map(|row: &PlanRow| row.k).collect();
        Ok(PlanTable {
            n_expert: experts.n_expert,
            score: planner.score().to_string(),
            blend: planner.blend().to_string(),
            corpora: planner.usage().corpora.iter().map(|corpus| corpus.name.clone()).collect(),
            rows,
            stability: Stability::by_planner(planner, &ks)?,
            limits: limits(experts),
        })
    }
}

/// What the model allows, one line each.
fn limits(experts: &Experts) -> Vec<String> {
    let n = experts.n_expert;
    let possible = experts.possible_counts();
    let mut lines = vec![];
    match possible.as_slice() {
        [] => {}
        [_] => {
            let reason = experts.check_count(n.saturating_sub(1)).err();
            lines.extend(reason.map(|reason| reason.to_string()));
        }
        [first, second, ..] => {
            let step = second - first;
            let even = possible.windows(2).all(|pair| pair[1] - pair[0] == step);
            let steps = if even && step > 1 { format!(" in steps of {step}") } else { String::new() };
            let some = if even { "" } else { ", some of them" };
            lines.push(format!("possible K: {first} to {n}{steps}{some} ({} numbers)", possible.len()));
        }
    }
    lines.push(format!("a token goes to {} experts: K cannot be less", experts.n_expert_used));
    if let Some(groups) = experts.groups.filter(|groups| groups.count > 1) {
        lines.push(format!(
            "{} groups of experts, of which a token reaches {}: each keeps the same number",
            groups.count, groups.used
        ));
    }
    let list = |wanted: &dyn Fn(&crate::moe::ExpertLayer) -> bool| {
        let layers = experts.layers.iter().filter(|layer| wanted(layer)).map(|layer| layer.layer.to_string());
        Some(layers.collect::<Vec<_>>().join(", ")).filter(|list| !list.is_empty())
    };
    if let Some(list) = list(&|layer| layer.n_expert < n) {
        lines.push(format!("layers with fewer experts, whole when K is not below their number: {list}"));
    }
    if let Some(list) = list(&|layer| layer.kind == LayerKind::Hash) {
        lines.push(format!("layers that look their experts up by token: {list}"));
    }
    if let Some(list) = list(&|layer| layer.kind == LayerKind::Mtp) {
        lines.push(format!("multi-token-prediction (MTP) layers: {list}"));
    }
    lines
}
