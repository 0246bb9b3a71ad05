//! The model file that a command works on.

use super::failure::Failure;
use super::mtp::{Mtp, MtpFlag};
use super::output::remark;
use crate::gguf;
use crate::moe::{Experts, Identity, LayerKind};
use std::path::Path;

/// A model file, and the experts in it.
pub struct Source {
    /// The file.
    pub model: gguf::Model,
    /// Its experts.
    pub experts: Experts,
    /// What it is known by.
    pub identity: Identity,
    /// Those to choose from, when they are not all.
    chosen: Option<Experts>,
    /// Those of the file to write, when they are not all.
    written: Option<Experts>,
}

impl Source {
    /// Opens `path` and reads what experts it holds.
    pub fn open(path: &Path) -> Result<Source, Failure> {
        let model = gguf::Model::open(path).map_err(Failure::input)?;
        let experts = Experts::read(&model).map_err(Failure::input)?;
        let identity = Identity::of(&model, &experts).map_err(Failure::input)?;
        Ok(Source { model, experts, identity, chosen: None, written: None })
    }

    /// Opens `path` for a cut that does with blocks of multi-token prediction what `flag` says.
    pub fn open_to_cut(path: &Path, flag: MtpFlag, quiet: bool) -> Result<Source, Failure> {
        let mut source = Self::open(path)?;
        if let Some(text) = flag.remark(&source.experts) {
            remark(quiet, text);
        }
        match flag.mtp {
            Some(Mtp::Drop) => source.drop_nextn()?,
            Some(Mtp::Plan) => {
                let mut trunk = source.experts.clone();
                trunk.layers.retain(|layer| layer.kind != LayerKind::NextN);
                source.chosen = Some(trunk);
            }
            Some(Mtp::Profile) | None => {}
        }
        Ok(source)
    }

    /// Leaves the blocks of multi-token prediction out of what is chosen and written.
    pub fn drop_nextn(&mut self) -> Result<(), Failure> {
        let trunk = self.experts.without_nextn(&self.model).map_err(Failure::input)?;
        self.chosen = Some(trunk.clone());
        self.written = Some(trunk);
        Ok(())
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

    /// The files of the model.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.model.shards().iter().map(|shard| shard.path.as_path())
    }

    /// The file that llama.cpp is to load: of several shards, the first.
    #[cfg(feature = "llama")]
    pub fn first_file(&self) -> &Path {
        self.files().next().unwrap_or(self.model.path())
    }

    /// The file name without its folder.
    pub fn file_name(&self) -> String {
        let path = self.model.path();
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }
}
