//! Whether a pruned model is what it claims to be: the model that it was cut from, without the removed experts.

mod data;
mod difference;
mod metadata;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::Cut;
use super::behind::{Frontier, ReaderProgress, follow};
use crate::gguf::{GgufError, Model};
use crate::moe::{
    Experts, IdMap, IdMapError, Identity, KeptExperts, MoeError, MoeModel, Provenance, PrunedError,
    PrunedShape, RouterMatch,
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
    /// What could not be compared, and why: a cut of a cut that is held against the first model shows no more.
    pub unchecked: Vec<String>,
    /// How long it took; of a cut that was compared while it was written, what came after the writing.
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
    #[error("{}: carries no id map (moeslice.expert_ids.*): it was not cut by moeslice, or was edited since", file.display())]
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
    /// The two models are given in the wrong order.
    #[error("{} {what} {}: give the model that was cut first, and the cut second", base.display(), pruned.display())]
    Swapped {
        /// What was given as the base.
        base: PathBuf,
        /// What was given as the cut of it.
        pruned: PathBuf,
        /// How the one relates to the other.
        what: &'static str,
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
/// pruned model says that they were left out (`moeslice.mtp`); what the model says of its making (`moeslice.*`) has to be
/// there, the id map has to be true, and padding zero. With `keep`, in the ids of `base`, exactly these experts have to
/// be there; the id map alone tells otherwise.
///
/// `base` may also be the model that an earlier cut began with: ids lead back through all cuts. What that leaves open
/// is in [`Verified::unchecked`]. Never compared, since no base tells them: the texts of `moeslice.version`, `.score`,
/// `.target` and `.corpora`.
pub fn verify(
    base: &Model,
    pruned: &Model,
    keep: Option<&KeptExperts>,
    progress: &mut dyn Progress,
    interrupt: Interrupt,
) -> Result<Verified, VerifyError> {
    let experts = Experts::read(base)?;
    check_order(base, &experts, pruned)?;
    let identity = Identity::of(base, &experts)?;
    verify_known((base, &experts, &identity), pruned, keep, (progress, interrupt))
}

/// As [`verify()`], with a base whose routers were hashed already.
pub fn verify_model(
    base: &MoeModel,
    pruned: &Model,
    keep: Option<&KeptExperts>,
    progress: &mut dyn Progress,
    interrupt: Interrupt,
) -> Result<Verified, VerifyError> {
    check_order(&base.file, &base.experts, pruned)?;
    verify_known((&base.file, &base.experts, &base.identity), pruned, keep, (progress, interrupt))
}

type Watch<'p> = (&'p mut dyn Progress, Interrupt);

fn verify_known(
    (base, whole_base, identity): (&Model, &Experts, &Identity),
    pruned: &Model,
    keep: Option<&KeptExperts>,
    watch: Watch<'_>,
) -> Result<Verified, VerifyError> {
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
    // The shape of a cut needs some provenance; what it says is compared apart.
    let told = Provenance::read_what_is_told(pruned.metadata());
    let shape = PrunedShape::new(base, &base_experts, &kept, &told)
        .map_err(|error| VerifyError::Kept { file: base.path().to_owned(), error })?;

    let mut found = difference::Collector::default();
    metadata::compare(base, &shape, pruned, &mut found);
    if let Some(provenance) = &provenance {
        metadata::compare_origin(base, identity, provenance, &mut found);
    }
    if IdMap::is_in(pruned) {
        metadata::compare_ids(&shape.ids, &IdMap::read(pruned, &pruned_experts)?, pruned, &mut found);
    }
    // A table of ids that was cut twice holds replacements of replacements.
    let direct =
        provenance.as_ref().is_none_or(|provenance| provenance.source_fingerprint == identity.fingerprint);
    compare_data((base, &base_experts), pruned, (&shape, kept), direct, found, watch)
}

/// Compares a cut with what it was cut from while it is being written, where all that the file says of itself is known.
pub(super) struct Following<'a> {
    cut: &'a Cut<'a>,
    shape: PrunedShape,
}

/// What [`Following::compare_data`] found.
pub(super) struct ComparedData {
    counts: data::Counts,
    found: difference::Collector,
}

impl<'a> Following<'a> {
    pub(super) fn new(cut: &'a Cut<'a>) -> Result<Self, VerifyError> {
        let shape = PrunedShape::new(cut.model, cut.experts, cut.keep, &cut.provenance)
            .map_err(|error| VerifyError::Kept { file: cut.model.path().to_owned(), error })?;
        Ok(Self { cut, shape })
    }

    /// Compares the tensors of `written`, whose headers are there already, each when it is on the disk.
    pub(super) fn compare_data(
        &self,
        written: &Model,
        frontier: &Frontier<'_>,
        interrupt: Interrupt,
    ) -> Result<ComparedData, VerifyError> {
        let Cut { model, experts, keep, .. } = *self.cut;
        follow(frontier, |reader| {
            let mut progress = ReaderProgress(frontier);
            let watch = (&mut progress as _, interrupt);
            let mut comparison =
                data::Comparison::new(model, written, experts, keep, true, Some(reader), watch);
            let mut found = difference::Collector::default();
            comparison.run(&self.shape, &mut found)?;
            Ok(ComparedData { counts: comparison.counts(), found })
        })
    }

    /// Compares what the finished files say of themselves, and puts it before what was found in the tensors.
    pub(super) fn finish(
        &self,
        written: &Model,
        data: ComparedData,
        duration: Duration,
    ) -> Result<Verified, VerifyError> {
        let mut found = difference::Collector::default();
        metadata::compare(self.cut.model, &self.shape, written, &mut found);
        let ids = IdMap::read(written, &Experts::read(written)?)?;
        metadata::compare_ids(&self.shape.ids, &ids, written, &mut found);
        found.followed_by(data.found).finish()?;
        let data::Counts { tensors, slabs, bytes, .. } = data.counts;
        let (unchecked, kept) = (Vec::new(), self.cut.keep.clone());
        Ok(Verified { tensors, slabs, bytes, unchecked, duration, kept })
    }
}

fn compare_data(
    (base, experts): (&Model, &Experts),
    pruned: &Model,
    (shape, kept): (&PrunedShape, KeptExperts),
    direct: bool,
    mut found: difference::Collector,
    watch: Watch<'_>,
) -> Result<Verified, VerifyError> {
    let start = Instant::now();
    let mut comparison = data::Comparison::new(base, pruned, experts, &kept, direct, None, watch);
    comparison.run(shape, &mut found)?;
    let data::Counts { tensors, slabs, bytes, tables } = comparison.counts();
    drop(comparison);
    found.finish()?;
    let mut unchecked = Vec::new();
    if !direct {
        unchecked.push(
            "moeslice.source_fingerprint, .source_router_hash and .router_sketch: they are those of a cut that lies \
             between the two models"
                .to_owned(),
        );
        if tables > 0 {
            unchecked.push(format!(
                "{tables} tables of expert ids: which experts took the place of removed ones depends on the cut between"
            ));
        }
    }
    Ok(Verified { tensors, slabs, bytes, unchecked, duration: start.elapsed(), kept })
}

/// Recognises a cut that is given as the base, and its base as the cut.
fn check_order(base: &Model, base_experts: &Experts, pruned: &Model) -> Result<(), VerifyError> {
    let swapped = |what| {
        let (base, pruned) = (base.path().to_owned(), pruned.path().to_owned());
        Err(VerifyError::Swapped { base, pruned, what })
    };
    if let Some(provenance) = Provenance::read(base.metadata()) {
        let fingerprint = crate::moe::fingerprint(pruned);
        if [provenance.source_fingerprint, provenance.original_fingerprint].contains(&fingerprint) {
            return swapped("is a cut of");
        }
    }
    let count = pruned.arch_value("expert_count").and_then(|count| count.as_u64());
    if count.is_some_and(|count| count > u64::from(base_experts.n_expert)) {
        return swapped("has fewer experts than");
    }
    Ok(())
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
        let known: HashMap<u32, u32> = known.iter().copied().zip(0..).collect();
        let ids = (0..).zip(originals).map(|(id, original)| {
            known.get(original).copied().ok_or_else(|| VerifyError::Origin {
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

impl From<Interrupted> for VerifyError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}
