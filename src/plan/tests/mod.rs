mod check;
mod choose;
mod keep;
mod resolve;

use super::*;
use crate::moe::{ExpertLayer, Experts, Groups, LayerKind, family};
use crate::score::LayerScores;
use std::collections::BTreeMap;

/// A model of `architecture` whose layers (number, experts) hold no tensors; `used` experts for a token.
fn experts(architecture: &str, used: u32, layers: &[(u32, u32)]) -> Experts {
    let layer = |&(layer, n_expert): &(u32, u32)| ExpertLayer {
        layer,
        n_expert,
        n_used: used,
        kind: LayerKind::Trunk,
        tensors: vec![],
        hash_table: None,
        bytes_per_expert: 0,
    };
    Experts {
        architecture: architecture.into(),
        family: family(architecture),
        n_layer: layers.last().unwrap().0 + 1,
        n_expert: layers.iter().map(|layer| layer.1).max().unwrap(),
        n_expert_used: used,
        used_per_layer: None,
        groups: None,
        n_nextn: 0,
        nextn_runs: false,
        nextn_dropped: 0,
        gate: None,
        shared: false,
        chunks: false,
        layers: layers.iter().map(layer).collect(),
    }
}

/// As [`experts`], with `count` groups of experts of which a token reaches `used`.
fn grouped(mut experts: Experts, count: u32, used: u32) -> Experts {
    experts.groups = Some(Groups { count, used });
    experts
}

/// As [`experts`], with the last layer a multi-token-prediction block.
fn with_nextn(mut experts: Experts) -> Experts {
    experts.n_nextn = 1;
    experts.layers.last_mut().unwrap().kind = LayerKind::NextN;
    experts
}

fn scores(layers: &[(u32, &[f64])]) -> BTreeMap<u32, LayerScores> {
    layers.iter().map(|&(layer, value)| (layer, LayerScores { value: value.to_vec(), tie: None })).collect()
}
