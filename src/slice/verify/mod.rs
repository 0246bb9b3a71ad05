//! Whether a pruned model is what it claims to be: the model that it was cut from, without the removed experts.

mod data;
mod difference;
mod metadata;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::gguf::{GgufError, Model};
use crate::moe::{
    Experts, IdMap, IdMapError, Identity, KeptExperts, MoeError, Provenance, PrunedError, PrunedShape,
};

use crate::progress::{Interrupt, Interrupted, Progress};

pub use difference::{Difference, Differences, Where};

/// What was compared and found the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Tensors of the pruned model.
    pub tensors: u64,
    /// Experts in expert tensors, each counted in each tensor.
    pub slabs: u64,
    /// Bytes of tensor data of the pruned model, each compared with its original.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// The experts that stayed, by layer, in the ids of the base.
    pub kept: KeptExperts,
}

/// Why a pruned model was not found to be true.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// One of the models could not be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The experts of one of the models cannot be told.
    #[error(transparent)]
    Moe(#[from] MoeError),
    /// The id map of one of the models is damaged.
    #[error(transparent)]
    Ids(#[from] IdMapError),
    /// The kept experts cannot be a cut of the base.
    #[error("{}: {error}", file.display())]
    Kept {
        /// The base.
        file: PathBuf,
        /// What is against it.
        error: PrunedError,
    },
    /// The pruned model says nothing of where its experts come from.
    #[error("{}: carries no id map (moeslice.expert_ids.*): give the plan that it was cut by", file.display())]
    NoIdMap {
        /// The pruned model.
        file: PathBuf,
    },
    /// The pruned model was cut from another model.
    #[error("{}: expert {id} of layer {layer} comes from an expert that {} does not have", pruned.display(), base.display())]
    Origin {
        /// The pruned model.
        pruned: PathBuf,
        /// The base.
        base: PathBuf,
        /// The layer.
        layer: u32,
        /// The expert's id in the pruned model.
        id: u32,
    },
    /// Stopped by the caller.
    #[error("interrupted before everything was compared")]
    Interrupted,
    /// There are differences.
    #[error("{0}")]
    Differs(Box<Differences>),
}

/// Compares a pruned model with the one that it was cut from.
///
/// Every kept expert and every other tensor has to have the same bytes, all metadata but those that a cut changes the
/// same values in the same order; nothing may be missing or added but the blocks of multi-token prediction, where the
/// pruned model says that they were left out (`moeslice.mtp`); the id map has to be true and padding zero. With
/// `keep`, in the ids of `base`, exactly these experts have to be there; the id map alone tells otherwise.
///
/// `base` may also be the model that an earlier cut began with: ids lead back through all cuts.
pub fn verify(
    base: &Model,
    pruned: &Model,
    keep: Option<&KeptExperts>,
    progress: &mut dyn Progress,
    interrupt: Interrupt,
) -> Result<Verified, VerifyError> {
    let start = Instant::now();
    let whole_base = Experts::read(base)?;
    let pruned_experts = Experts::read(pruned)?;
    // Nothing may be missing but what the pruned model says was left out.
    let base_experts = match Provenance::says_mtp_dropped(pruned.metadata()) {
        true => whole_base.without_mtp(base)?,
        false => whole_base.clone(),
    };
    let kept = match keep {
        Some(keep) => keep.clone(),
        None => kept_of((base, &base_experts), (pruned, &pruned_experts))?,
    };
    let provenance = Provenance::read(pruned.metadata());
    let fingerprint = Identity::of(base, &whole_base)?.fingerprint;
    let shape = PrunedShape::new(base, &base_experts, &kept, &stand_in(&provenance))
        .map_err(|error| VerifyError::Kept { file: base.path().to_owned(), error })?;

    let mut found = difference::Collector::default();
    metadata::compare(&shape, pruned, &mut found);
    metadata::compare_origin(base, &fingerprint, provenance.as_ref(), &mut found);
    if IdMap::is_in(pruned) {
        metadata::compare_ids(&shape.ids, &IdMap::read(pruned, &pruned_experts)?, &mut found);
    }
    // A table of ids that was cut twice holds replacements of replacements.
    let direct = provenance.as_ref().is_none_or(|provenance| provenance.source_fingerprint == fingerprint);
    let watch = (progress, interrupt);
    let mut comparison = data::Comparison::new(base, pruned, &base_experts, &kept, direct, watch);
    comparison.run(&shape, &mut found)?;
    let (tensors, slabs, bytes) = comparison.counts();
    found.finish()?;
    Ok(Verified { tensors, slabs, bytes, duration: start.elapsed(), kept })
}

/// The experts of `pruned` by their ids in `base`, as the id maps of both tell.
pub fn kept_of(
    (base, base_experts): (&Model, &Experts),
    (pruned, pruned_experts): (&Model, &Experts),
) -> Result<KeptExperts, VerifyError> {
    if !IdMap::is_in(pruned) {
        return Err(VerifyError::NoIdMap { file: pruned.path().to_owned() });
    }
    let base_ids = IdMap::read(base, base_experts)?;
    let mut kept = KeptExperts::default();
    for (layer, originals) in IdMap::read(pruned, pruned_experts)?.layers() {
        let known = base_ids.layer(layer).unwrap_or_default();
        let ids = (0..).zip(originals).map(|(id, original)| {
            let at = (0_u32..).zip(known).find(|(_, known)| *known == original).map(|(at, _)| at);
            at.ok_or_else(|| VerifyError::Origin {
                pruned: pruned.path().to_owned(),
                base: base.path().to_owned(),
                layer,
                id,
            })
        });
        kept.insert(layer, ids.collect::<Result<Vec<u32>, _>>()?);
    }
    Ok(kept)
}

/// The shape of a cut needs some provenance; what it says is compared apart from the other metadata.
fn stand_in(provenance: &Option<Provenance>) -> Provenance {
    provenance.clone().unwrap_or_else(|| Provenance {
        version: String::new(),
        source_fingerprint: String::new(),
        original_fingerprint: String::new(),
        score: String::new(),
        target: String::new(),
        corpora: Vec::new(),
    })
}

impl From<Interrupted> for VerifyError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
