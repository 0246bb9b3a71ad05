//! What a model file looks like with fewer experts: its metadata, its tensors, its files and their sizes.
//!
//! Nothing of the tensors' data is read here, so the exact size of a cut is known before it is made.

mod files;
mod provenance;
mod size_label;

use thiserror::Error;

use super::{Experts, IdMap, IdMapError, KeptError, KeptExperts};
use crate::gguf::{GgufError, Metadata, Model, SPLIT_TENSORS_KEY, TensorInfo, Value};

pub use files::{FileShape, ShardPolicy};
pub use provenance::Provenance;

const SIZE_LABEL_KEY: &str = "general.size_label";

/// Why a pruned model cannot be laid out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrunedError {
    /// The choice of experts is not possible.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The id map of the source is damaged.
    #[error(transparent)]
    Ids(#[from] IdMapError),
    /// The file cannot be laid out.
    #[error(transparent)]
    Layout(#[from] GgufError),
    /// More shards than their numbers can count.
    #[error("shards of {bytes} bytes would be {shards} files, and there can be 65535: choose a larger size")]
    TooManyShards {
        /// The size asked for.
        bytes: u64,
        /// Shards of that size.
        shards: usize,
    },
    /// More tensors than the metadata of shards can count.
    #[error("{tensors} tensors are more than the shards of a model can count: write a single file")]
    TooManyTensors {
        /// Tensors of the model.
        tensors: usize,
    },
}

/// A model with fewer experts, as it would be written.
#[derive(Clone, Debug)]
pub struct PrunedShape {
    /// The metadata, with the `split.*` of the source: each file has its own.
    pub metadata: Metadata,
    /// The tensors in the order of [`Model::tensors`], with their new shapes. Their offsets depend on the files.
    pub tensors: Vec<TensorInfo>,
    /// Where each of them comes from: its index into [`Model::tensors`].
    pub sources: Vec<usize>,
    /// The original ids of the experts that stay.
    pub ids: IdMap,
    shards: Vec<files::Shard>,
}

impl PrunedShape {
    /// The shape of `model` when only the experts `kept` stay, given by their ids in `model`.
    ///
    /// `{arch}.expert_count` becomes the number that stays, `general.size_label` is brought up to date when it is
    /// there, and `moeslice.*` is added. All other metadata are the same bytes. With [`Experts::without_mtp`], the
    /// blocks of multi-token prediction are left out: their tensors, their number, their entries in arrays that have
    /// one a layer.
    pub fn new(
        model: &Model,
        experts: &Experts,
        kept: &KeptExperts,
        provenance: &Provenance,
    ) -> Result<Self, PrunedError> {
        let n_expert = kept.check(experts)?;
        let ids = IdMap::read(model, experts)?.compose(kept)?;
        let mut tensors = tensors(model, experts, kept);
        let sources: Vec<usize> =
            (0..tensors.len()).filter(|&at| !experts.drops(&tensors[at].name)).collect();
        tensors.retain(|info| !experts.drops(&info.name));
        let mut shards: Vec<files::Shard> = Vec::with_capacity(model.shards().len());
        let changes = Changes { experts, kept, n_expert, tensors: &tensors };
        for shard in model.shards() {
            let mut metadata = shard.header.metadata.clone();
            changes.apply(&mut metadata)?;
            let start = shards.last().map_or(0, |shard| shard.tensors.end);
            let left = shard.header.tensors.iter().filter(|info| !experts.drops(&info.name)).count();
            shards.push(files::Shard {
                metadata,
                version: shard.header.version,
                tensors: start..start + left,
            });
        }
        if let Some(first) = shards.first_mut() {
            provenance.write_into(&mut first.metadata);
            ids.write_into(&mut first.metadata);
            if experts.mtp_dropped > 0 {
                provenance::note_dropped_mtp(&mut first.metadata);
            }
        }
        let metadata = shards.first().map(|shard| shard.metadata.clone()).unwrap_or_default();
        Ok(Self { metadata, tensors, sources, ids, shards })
    }

    /// The shape when `k` experts of each layer stay, whichever: sizes depend on their number alone.
    pub fn of_count(
        model: &Model,
        experts: &Experts,
        k: u32,
        provenance: &Provenance,
    ) -> Result<Self, PrunedError> {
        experts.check_count(k).map_err(KeptError::from)?;
        Self::new(model, experts, &KeptExperts::any(experts, k), provenance)
    }

    /// Bytes of all files of a cut that keeps `k` experts of each layer: the one place that tells the size of a cut.
    ///
    /// # Errors
    /// When the model cannot keep that number, or no file can be laid out.
    pub fn bytes_of_count(
        model: &Model,
        experts: &Experts,
        k: u32,
        provenance: &Provenance,
        policy: ShardPolicy,
    ) -> Result<u64, PrunedError> {
        Ok(Self::of_count(model, experts, k, provenance)?.file_bytes(policy)?.iter().sum())
    }

    /// The files that would be written.
    pub fn files(&self, policy: ShardPolicy) -> Result<Vec<FileShape>, PrunedError> {
        files::share_out(
            policy,
            &self.shards,
            files::Tensors { infos: &self.tensors, sources: &self.sources },
        )
    }

    /// Bytes of each file that would be written, padding included.
    pub fn file_bytes(&self, policy: ShardPolicy) -> Result<Vec<u64>, PrunedError> {
        Ok(self.files(policy)?.iter().map(|file| file.layout.file_bytes()).collect())
    }
}

/// The tensors with their new numbers of experts.
fn tensors(model: &Model, experts: &Experts, kept: &KeptExperts) -> Vec<TensorInfo> {
    let mut tensors: Vec<TensorInfo> = model.tensors().iter().map(|tensor| tensor.info.clone()).collect();
    for layer in &experts.layers {
        let k = kept.layer(layer.layer).map_or(0, <[u32]>::len) as u64;
        for tensor in &layer.tensors {
            // A single expert may have no dimension of its own, and then stays.
            if let Some(dim) = tensors[tensor.index].dims.get_mut(tensor.role.axis()) {
                *dim = k;
            }
        }
    }
    tensors
}

/// What changes in the metadata.
struct Changes<'a> {
    experts: &'a Experts,
    kept: &'a KeptExperts,
    n_expert: u32,
    tensors: &'a [TensorInfo],
}

impl Changes<'_> {
    /// Changes the entries that are there: some programs repeat the metadata in every shard.
    fn apply(&self, metadata: &mut Metadata) -> Result<(), PrunedError> {
        if self.experts.mtp_dropped > 0 {
            self.experts.drop_from(metadata);
            if metadata.contains(SPLIT_TENSORS_KEY) {
                metadata.set(SPLIT_TENSORS_KEY, files::count_for_shards(self.tensors.len())?);
            }
        }
        let before = self.experts.n_expert;
        let key = format!("{}.expert_count", self.experts.architecture);
        if metadata.get(&key) == Some(Value::U32(before)) && self.n_expert != before {
            metadata.set(&key, self.n_expert);
        }
        let whole = self.experts.mtp_dropped == 0
            && self.experts.layers.iter().all(|layer| {
                self.kept.layer(layer.layer).is_some_and(|ids| ids.len() as u64 == u64::from(layer.n_expert))
            });
        let label = metadata.get(SIZE_LABEL_KEY).and_then(|value| value.as_str().map(str::to_owned));
        if let Some(label) = label.filter(|_| !whole) {
            let parameters = self.tensors.iter().fold(0_u64, |sum, info| sum.saturating_add(info.elements()));
            let label = size_label::relabel(&label, before, self.n_expert, parameters);
            metadata.set(SIZE_LABEL_KEY, label.as_str());
        }
        Ok(())
    }
}
