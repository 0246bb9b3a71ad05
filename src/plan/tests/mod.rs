mod check;
mod choose;
mod resolve;
mod target;

use super::*;
use crate::moe::{Experts, Groups, LayerKind, test_experts};
use crate::score::LayerScores;
use std::collections::BTreeMap;

/// A model of `architecture` whose layers (number, experts) hold no tensors; `used` experts for a token.
fn experts(architecture: &str, used: u32, layers: &[(u32, u32)]) -> Experts {
    let layers: Vec<_> = layers.iter().map(|&(layer, n_expert)| (layer, n_expert, used)).collect();
    test_experts::experts(architecture, &layers, None)
}

/// As [`experts`], with `count` groups of experts of which a token reaches `used`.
fn grouped(mut experts: Experts, count: u32, used: u32) -> Experts {
    experts.groups = Some(Groups { count, used });
    experts
}

/// As [`experts`], with the last layer a multi-token-prediction block.
fn with_mtp(mut experts: Experts) -> Experts {
    experts.n_mtp = 1;
    experts.layers.last_mut().unwrap().kind = LayerKind::Mtp;
    experts
}

fn scores(layers: &[(u32, &[f64])]) -> BTreeMap<u32, LayerScores> {
    layers.iter().map(|&(layer, value)| (layer, LayerScores { value: value.to_vec(), tie: None })).collect()
}
