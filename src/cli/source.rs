//! The model file that a command works on.

use super::failure::Failure;
use crate::gguf;
use crate::moe::{Experts, Identity};
use std::path::Path;

/// A model file, and the experts in it.
pub struct Source {
    /// The file.
    pub model: gguf::Model,
    /// Its experts.
    pub experts: Experts,
    /// What it is known by.
    pub identity: Identity,
}

impl Source {
    /// Opens `path` and reads what experts it holds.
    pub fn open(path: &Path) -> Result<Source, Failure> {
        let model = gguf::Model::open(path).map_err(Failure::input)?;
        let experts = Experts::read(&model).map_err(Failure::input)?;
        let identity = Identity::of(&model, &experts).map_err(Failure::input)?;
        Ok(Source { model, experts, identity })
    }

    /// The files of the model.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.model.shards().iter().map(|shard| shard.path.as_path())
    }

    /// The file name without its folder.
    pub fn file_name(&self) -> String {
        let path = self.model.path();
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }
}
