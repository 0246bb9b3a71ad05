//! A model file with its experts and its identity: what every cut begins with.

use std::path::Path;

use super::{Experts, Identity, LayerKind, MoeError, Provenance, PrunedError, PrunedShape, ShardPolicy};
use crate::gguf;
use crate::sys::name_of;

/// A model file, the experts in it, and which of them a cut chooses from and writes.
///
/// ```no_run
/// use moeslice::moe::MoeModel;
/// use std::path::Path;
///
/// let mut model = MoeModel::open(Path::new("model-00001-of-00003.gguf"))?;
/// println!("{} experts in each of {} layers", model.experts.n_expert, model.experts.layers.len());
/// println!("a cut can keep {:?}", model.chosen().possible_counts());
///
/// // Without the blocks of multi-token prediction.
/// model.drop_mtp()?;
/// assert!(model.written().layers.len() <= model.experts.layers.len());
/// # Ok::<(), moeslice::moe::MoeError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct MoeModel {
    /// The file, or all its shards.
    pub file: gguf::Model,
    /// The experts of the file.
    pub experts: Experts,
    /// What the model is known by.
    pub identity: Identity,
    /// The experts to choose from, when they are not all.
    chosen: Option<Experts>,
    /// The experts of the file that a cut writes, when they are not all.
    written: Option<Experts>,
}

impl MoeModel {
    /// Opens the model at `path`, any shard of several, and reads which experts it holds.
    ///
    /// # Errors
    /// When the file is malformed, or its experts cannot be told.
    pub fn open(path: &Path) -> Result<Self, MoeError> {
        let file = gguf::Model::open(path)?;
        let experts = Experts::read(&file)?;
        let identity = Identity::of(&file, &experts)?;
        Ok(MoeModel { file, experts, identity, chosen: None, written: None })
    }

    /// Leaves the blocks of multi-token prediction (MTP) out of what is chosen and written.
    ///
    /// # Errors
    /// See [`Experts::without_mtp`].
    pub fn drop_mtp(&mut self) -> Result<(), MoeError> {
        let trunk = self.experts.without_mtp(&self.file)?;
        self.chosen = Some(trunk.clone());
        self.written = Some(trunk);
        Ok(())
    }

    /// Leaves the blocks of multi-token prediction (MTP) out of what is chosen; a cut still writes them.
    pub fn choose_from_trunk(&mut self) {
        let mut trunk = self.experts.clone();
        trunk.layers.retain(|layer| layer.kind != LayerKind::Mtp);
        self.chosen = Some(trunk);
    }

    /// The experts to choose from.
    pub fn chosen(&self) -> &Experts {
        self.chosen.as_ref().unwrap_or(&self.experts)
    }

    /// The experts of the file that a cut writes, when it keeps them all.
    pub fn written(&self) -> &Experts {
        self.written.as_ref().unwrap_or(&self.experts)
    }

    /// Whether a layer has experts that are not to choose from.
    pub fn passes_over(&self, layer: u32) -> bool {
        self.experts.layer(layer).is_some() && self.chosen().layer(layer).is_none()
    }

    /// Where the model lies; of several shards, the one that was named.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The files of the model, in order; llama.cpp is to load the first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.file.shards().iter().map(|shard| shard.path.as_path())
    }

    /// The file name without its folder.
    pub fn file_name(&self) -> String {
        name_of(self.path())
    }

    /// What a cut of this model tells of its making.
    pub fn provenance(&self, score: &str, target: &str, corpora: Vec<String>) -> Provenance {
        Provenance::new(&self.file, &self.identity, score, target, corpora)
    }

    /// Bytes of all files of a cut that keeps `k` experts of each layer, whichever they are.
    ///
    /// # Errors
    /// When the model cannot keep that number, or no file can be laid out.
    pub fn cut_bytes(
        &self,
        k: u32,
        provenance: &Provenance,
        shards: ShardPolicy,
    ) -> Result<u64, PrunedError> {
        PrunedShape::bytes_of_count(&self.file, self.written(), k, provenance, shards)
    }
}
