//! Where a pruned file comes from.

use crate::gguf::{Metadata, Model};
use crate::moe::{Identity, RouterSketch};

const VERSION_KEY: &str = "moeslice.version";
const SOURCE_KEY: &str = "moeslice.source_fingerprint";
const ORIGINAL_KEY: &str = "moeslice.original_fingerprint";
const SCORE_KEY: &str = "moeslice.score";
const TARGET_KEY: &str = "moeslice.target";
const CORPORA_KEY: &str = "moeslice.corpora";
const ROUTERS_KEY: &str = "moeslice.source_router_hash";
/// There only where the blocks of multi-token prediction were left out.
const NEXTN_KEY: &str = "moeslice.mtp";
const NEXTN_DROPPED: &str = "dropped";

/// What a pruned file tells of its making, as the metadata `moeslice.*`. The id map goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Version of moeslice: `moeslice.version`.
    pub version: String,
    /// Fingerprint of the file that was cut: `moeslice.source_fingerprint`.
    pub source_fingerprint: String,
    /// Fingerprint of the file that was never cut: `moeslice.original_fingerprint`.
    pub original_fingerprint: String,
    /// How experts were ranked, such as `frequency`: `moeslice.score`.
    pub score: String,
    /// What was asked for, such as `75%`: `moeslice.target`.
    pub target: String,
    /// The corpora that were profiled, each with its hash: `moeslice.corpora`.
    pub corpora: Vec<String>,
    /// Hash of the routers of the file that was cut, `moeslice.source_router_hash`; not in files of version 0.1.0.
    pub source_router_hash: Option<String>,
    /// A few weights of those routers, `moeslice.router_sketch.*`, where there is a sketch of them.
    pub router_sketch: Option<RouterSketch>,
}

impl Provenance {
    /// The provenance of a cut of `model` by this version. A file that was cut before hands on its origin.
    pub fn new(model: &Model, identity: &Identity, score: &str, target: &str, corpora: Vec<String>) -> Self {
        let origin = Self::origin(model.metadata());
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source_fingerprint: identity.fingerprint.clone(),
            original_fingerprint: origin.unwrap_or_else(|| identity.fingerprint.clone()),
            score: score.to_owned(),
            target: target.to_owned(),
            corpora,
            source_router_hash: Some(identity.router_hash.clone()),
            router_sketch: identity.router_sketch.clone(),
        }
    }

    /// The fingerprint of the model that was never cut, which a pruned file carries.
    pub fn origin(metadata: &Metadata) -> Option<String> {
        metadata.get(ORIGINAL_KEY)?.as_str().map(str::to_owned)
    }

    /// What a file says of its own making; `None` for one that was not written by moeslice, or was edited since.
    pub fn read(metadata: &Metadata) -> Option<Self> {
        let told = Self::read_what_is_told(metadata);
        let texts = [VERSION_KEY, SOURCE_KEY, ORIGINAL_KEY, SCORE_KEY, TARGET_KEY];
        let whole = texts.iter().all(|key| text(metadata, key).is_some()) && corpora(metadata).is_some();
        whole.then_some(told)
    }

    /// As [`read`](Self::read), with nothing in place of what is missing.
    pub(crate) fn read_what_is_told(metadata: &Metadata) -> Self {
        let text = |key| text(metadata, key);
        Self {
            version: text(VERSION_KEY).unwrap_or_default(),
            source_fingerprint: text(SOURCE_KEY).unwrap_or_default(),
            original_fingerprint: text(ORIGINAL_KEY).unwrap_or_default(),
            score: text(SCORE_KEY).unwrap_or_default(),
            target: text(TARGET_KEY).unwrap_or_default(),
            corpora: corpora(metadata).unwrap_or_default(),
            source_router_hash: text(ROUTERS_KEY),
            router_sketch: RouterSketch::read(metadata),
        }
    }

    /// Whether a file says that it lacks the blocks of multi-token prediction that its original had:
    /// `moeslice.mtp` is `dropped`.
    pub fn says_mtp_dropped(metadata: &Metadata) -> bool {
        metadata.get(NEXTN_KEY).and_then(|value| value.as_str().map(|text| text == NEXTN_DROPPED))
            == Some(true)
    }

    /// Writes it into a file's metadata in place of what they hold.
    pub(super) fn write_into(&self, metadata: &mut Metadata) {
        metadata.set(VERSION_KEY, self.version.as_str());
        metadata.set(SOURCE_KEY, self.source_fingerprint.as_str());
        metadata.set(ORIGINAL_KEY, self.original_fingerprint.as_str());
        metadata.set(SCORE_KEY, self.score.as_str());
        metadata.set(TARGET_KEY, self.target.as_str());
        metadata.set(CORPORA_KEY, self.corpora.clone());
        match &self.source_router_hash {
            Some(hash) => metadata.set(ROUTERS_KEY, hash.as_str()),
            None => drop(metadata.remove(ROUTERS_KEY)),
        }
        match &self.router_sketch {
            Some(sketch) => sketch.write_into(metadata),
            None => RouterSketch::remove_from(metadata),
        }
    }
}

fn text(metadata: &Metadata, key: &str) -> Option<String> {
    metadata.get(key)?.as_str().map(str::to_owned)
}

fn corpora(metadata: &Metadata) -> Option<Vec<String>> {
    metadata.get(CORPORA_KEY)?.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

/// Notes that the blocks of multi-token prediction were left out. A later cut hands the note on with all metadata.
pub(super) fn note_dropped_mtp(metadata: &mut Metadata) {
    metadata.set(NEXTN_KEY, NEXTN_DROPPED);
}
