//! Experts and identities of models that hold no tensors, for tests and fuzz targets.

use super::{ExpertLayer, Experts, Groups, Identity, LayerKind};
use crate::arch;

/// A model of `architecture` whose layers (number, experts, experts used for a token) hold no tensors.
pub(crate) fn experts(architecture: &str, layers: &[(u32, u32, u32)], groups: Option<Groups>) -> Experts {
    let layer = |&(layer, n_expert, n_expert_used): &(u32, u32, u32)| ExpertLayer {
        layer,
        n_expert,
        n_expert_used,
        kind: LayerKind::Trunk,
        tensors: vec![],
        hash_table: None,
        bytes_per_expert: 0,
    };
    Experts {
        architecture: architecture.into(),
        arch: arch::architecture(architecture),
        n_layer: layers.last().map_or(0, |layer| layer.0.saturating_add(1)),
        n_expert: layers.iter().map(|layer| layer.1).max().unwrap_or(0),
        n_expert_used: layers.iter().map(|layer| layer.2).max().unwrap_or(0),
        used_per_layer: None,
        groups,
        n_mtp: 0,
        mtp_runs: false,
        mtp_dropped: 0,
        gate: None,
        shared: false,
        chunks: false,
        layers: layers.iter().map(layer).collect(),
    }
}

/// What a model with these experts would be known by.
pub(crate) fn identity(experts: &Experts) -> Identity {
    Identity {
        architecture: experts.architecture.clone(),
        fingerprint: "sha256:f".into(),
        router_hash: "sha256:r".into(),
        router_sketch: None,
        n_layer: experts.n_layer,
        n_expert: experts.n_expert,
        n_expert_used: experts.n_expert_used,
        expert_layers: experts.layers.iter().map(|layer| layer.layer).collect(),
    }
}
