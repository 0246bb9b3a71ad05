//! What a pass gives, and the usage file of it.

use super::error::ProfileError;
use super::routing::Ubatches;
use crate::corpus::CHAT_DATE;
use crate::moe::Identity;
use crate::usage::{Corpus, LayerUsage, Part, ProfiledModel, Run, USAGE_SCHEMA, Usage};
use std::path::Path;
use std::time::Duration;

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The corpora with the tokens that were profiled.
    pub corpora: Vec<Corpus>,
    /// The layers.
    pub layers: Vec<LayerUsage>,
    /// Tokens handed to llama.cpp at once.
    pub batch_size: u32,
    /// Tokens computed at once, at most.
    pub ubatch_size: u32,
    /// Threads on the processor, for batches.
    pub threads: u32,
    /// Whether the windows of a batch shared one store of keys and values.
    pub kv_unified: bool,
    /// The devices that computed the trunk, the one with most work first.
    pub devices: Vec<String>,
    /// How the trunk was computed.
    pub ubatches: Ubatches,
    /// From the first to the last window.
    pub wall: Duration,
    /// Whether conversations were rendered.
    pub has_chats: bool,
    /// Which part of a run this is.
    pub part: Option<Part>,
    /// What is not as one may expect.
    pub remarks: Vec<String>,
}

/// Where and with what a profile was made.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// Version of llama.cpp.
    pub llama_cpp: String,
    /// Variables of the environment that were set for the devices, as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Tokens of a window.
    pub ctx_size: u32,
}

impl Profile {
    /// The usage file of this profile.
    ///
    /// # Errors
    /// When its figures contradict each other.
    pub fn into_usage(
        self,
        file: &Path,
        identity: &Identity,
        circumstances: Circumstances,
    ) -> Result<Usage, ProfileError> {
        let usage = Usage {
            schema: USAGE_SCHEMA.to_owned(),
            model: ProfiledModel::new(file, identity),
            run: Run {
                moeslice: env!("CARGO_PKG_VERSION").to_owned(),
                llama_cpp: Some(circumstances.llama_cpp),
                imported_from: None,
                merged_from: Vec::new(),
                devices: self.devices,
                variables: circumstances.variables,
                ctx_size: circumstances.ctx_size,
                batch_size: self.batch_size,
                ubatch_size: self.ubatch_size,
                threads: Some(self.threads),
                kv_unified: Some(self.kv_unified),
                ubatches: Some(self.ubatches.count),
                largest_ubatch: Some(self.ubatches.largest),
                chat_date: self.has_chats.then(|| CHAT_DATE.to_owned()),
                part: self.part,
                wall_seconds: self.wall.as_secs_f64(),
            },
            corpora: self.corpora,
            layers: self.layers,
        };
        usage.check().map_err(|what| ProfileError::Inconsistent { what })?;
        Ok(usage)
    }
}
