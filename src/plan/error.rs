use crate::json::DocumentError;
use crate::moe::{CountError, KeptError};
use crate::score::ScoreError;
use crate::units::WithBytes;
use std::error::Error as StdError;
use std::path::PathBuf;
use thiserror::Error;

/// Why no plan can be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The model cannot keep that number of experts.
    #[error(transparent)]
    Keep(#[from] CountError),
    /// The experts cannot be ranked.
    #[error(transparent)]
    Score(#[from] ScoreError),
    /// A layer with experts that no token went through.
    #[error(
        "layer {layer} has experts and the usage has no counts of it: it was never reached; profile the model again"
    )]
    NeverReached {
        /// The layer.
        layer: u32,
    },
    /// A block of multi-token prediction without counts.
    #[error(
        "layer {layer} is a multi-token-prediction (MTP) block{}: leave it out, or name its experts in a plan",
        if *runs { ", of which the usage has no counts" } else { " that llama.cpp cannot run, so there are no counts of it" }
    )]
    Mtp {
        /// The layer.
        layer: u32,
        /// Whether llama.cpp can run it.
        runs: bool,
    },
    /// The usage counts a layer that holds no experts in this model.
    #[error(
        "the usage has counts of layer {layer}, which has no experts in this model; profile this model itself"
    )]
    ForeignLayer {
        /// The layer.
        layer: u32,
    },
    /// The usage counts another number of experts.
    #[error(
        "layer {layer}: the usage counts {counted} experts, the model has {n_expert}; profile this model itself"
    )]
    ExpertCount {
        /// The layer.
        layer: u32,
        /// Experts in the usage.
        counted: usize,
        /// Experts in the model.
        n_expert: u32,
    },
    /// A pinned expert in a layer without any.
    #[error("experts of layer {layer} are pinned, which has no experts in this model")]
    PinLayer {
        /// The layer.
        layer: u32,
    },
    /// A pinned expert that the layer does not have.
    #[error("the pinned expert {layer}:{id} does not exist: layer {layer} has {n_expert} experts, 0 to {}", n_expert - 1)]
    PinId {
        /// The layer.
        layer: u32,
        /// The expert.
        id: u32,
        /// Experts of the layer, at least one.
        n_expert: u32,
    },
    /// More pins than places.
    #[error("{pins} experts of layer {layer} are pinned, and it keeps {k}: keep more or pin fewer")]
    PinCount {
        /// The layer.
        layer: u32,
        /// Experts pinned there.
        pins: u32,
        /// Experts that the layer keeps.
        k: u32,
    },
    /// More pins than places in a group.
    #[error(
        "{pins} experts of layer {layer}, group {group}, are pinned, and each group keeps {k}: keep more or pin fewer"
    )]
    PinGroup {
        /// The layer.
        layer: u32,
        /// The group.
        group: u32,
        /// Experts pinned there.
        pins: u32,
        /// Experts that each group keeps.
        k: u32,
    },
    /// Not even the smallest file is small enough.
    #[error(
        "no file of at most {} is possible: the smallest keeps {k} experts and has {}",
        WithBytes(*limit), WithBytes(*bytes)
    )]
    TooSmall {
        /// The size asked for.
        limit: u64,
        /// The smallest possible number of experts.
        k: u32,
        /// Bytes of its file.
        bytes: u64,
    },
    /// The size of a file could not be computed.
    #[error("the size of a file with {k} experts cannot be told: {error}")]
    Size {
        /// Experts that would be kept.
        k: u32,
        /// Why.
        error: Box<dyn StdError + Send + Sync>,
    },
}

/// Why a plan file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// The file cannot be read as a plan.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The plan was made for another model.
    #[error(
        "{} is a plan for another model ({planned}): the routers of {} differ; make a plan for this model",
        path.display(), model.display()
    )]
    OtherModel {
        /// The plan.
        path: PathBuf,
        /// The model file that it was made for.
        planned: String,
        /// The model file at hand.
        model: PathBuf,
    },
    /// The plan does not fit the model.
    #[error("{}: {fault}", path.display())]
    Fault {
        /// The plan.
        path: PathBuf,
        /// What is wrong.
        fault: PlanFault,
    },
}

/// What in a plan does not fit the model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanFault {
    /// The model cannot be cut to these experts.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The stated number is not that of the lists.
    #[error("k is {stated}, but its layers keep {kept} experts: the plan was edited or damaged")]
    Count {
        /// `k` of the plan.
        stated: u32,
        /// Experts that its layers keep.
        kept: u32,
    },
}
