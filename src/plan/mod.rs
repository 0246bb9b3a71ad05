//! Which experts stay: from a usage, a score and a target to the kept ids of each layer.
//!
//! [`Planner`] ranks a usage and resolves a [`KeepTarget`] to a number of experts; [`Plan`] is the file that says what is
//! kept and why, schema `moeslice.plan/1`. A plan that comes from a file is checked with [`Plan::check`] before use.

mod check;
mod choose;
mod coverage;
mod error;
mod pins;
mod planner;
mod target;

pub use choose::{Choice, Ties, check_early, choose};
pub use coverage::{Coverage, Coverages, coverage, covered, over_layers};
pub use error::{PlanError, PlanFault, PlanFileError};
pub use pins::{PinSyntaxError, Pins};
pub use planner::{Planner, SizeOf, largest_fitting};
pub use target::{KeepTarget, KeepTargetError};

use crate::json::Format;
use crate::moe::{Experts, Identity, KeptExperts};
use crate::sys::name_of;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The value of `schema` in a plan of this version.
pub const PLAN_SCHEMA: &str = "moeslice.plan/1";

const FORMAT: Format = Format {
    name: "plan",
    fault: "neither a plan of moeslice nor a map from layers to expert ids",
    schema: PLAN_SCHEMA,
};

/// A whole plan. Of a bare map of layers, only `k` and `keep` are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// `moeslice.plan/1`.
    #[cfg_attr(test, schemars(extend("const" = PLAN_SCHEMA)))]
    pub schema: String,
    /// The model that the plan was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PlanSource>,
    /// What the experts were ranked by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// The share of each corpus, when it was not that of its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blend: Option<String>,
    /// The experts that were kept whatever their score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_keep: Option<String>,
    /// What was asked for: the text of `--keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Experts that each layer keeps; a layer that has fewer stays whole.
    pub k: u32,
    /// Cuts that fell between experts of equal score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ties: Option<Ties>,
    /// The corpora of the usage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corpora: Vec<PlanCorpus>,
    /// The kept ids of each layer with experts, by layer.
    pub keep: KeptExperts,
}

/// The model that a plan was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanSource {
    /// File name, without its folder.
    pub file: String,
    /// SHA-256 over metadata and tensor table: this very file.
    pub fingerprint: String,
    /// SHA-256 over the router weights: this model, in whatever quantisation.
    pub router_hash: String,
}

/// A corpus that a plan rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanCorpus {
    /// Its name.
    pub name: String,
    /// Tokens that were profiled.
    pub tokens: u64,
    /// SHA-256 of its file, or, of several, that of their hashes in hex, each followed by a newline.
    pub sha256: String,
}

impl PlanSource {
    /// The model of this identity, in the file called `file`.
    pub fn new(file: &Path, identity: &Identity) -> Self {
        PlanSource {
            file: name_of(file),
            fingerprint: identity.fingerprint.clone(),
            router_hash: identity.router_hash.clone(),
        }
    }
}

impl Plan {
    /// Reads a plan, or a bare map `{"0": [ids], …}`. [`Plan::check`] says whether it fits a model.
    ///
    /// # Errors
    /// When it cannot be read or is neither of the two.
    pub fn read(path: &Path) -> Result<Plan, PlanFileError> {
        let text = FORMAT.read(path)?;
        Self::parse(&text, path)
    }

    /// Parses the bytes of a plan; `path` serves the messages alone.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Plan, PlanFileError> {
        /// A bare map.
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct Bare(KeptExperts);

        if let Some(plan) = FORMAT.parse_if_named(text, path)? {
            return Ok(plan);
        }
        let Bare(keep) = FORMAT.parse_bare(text, path)?;
        Ok(Plan::bare(keep))
    }

    /// A plan that says nothing but which experts stay; the lists must be ascending.
    pub fn bare(keep: KeptExperts) -> Plan {
        let longest = keep.iter().map(|(_, ids)| ids.len()).max().unwrap_or(0);
        Plan {
            schema: PLAN_SCHEMA.into(),
            source: None,
            score: None,
            blend: None,
            always_keep: None,
            target: None,
            k: u32::try_from(longest).unwrap_or(u32::MAX),
            ties: None,
            corpora: vec![],
            keep,
        }
    }

    /// Takes out what the plan says of blocks that are left out of `experts` by [`Experts::without_mtp`].
    pub fn leave_out(&mut self, experts: &Experts) {
        let dropped = experts.n_layer..experts.n_layer.saturating_add(experts.mtp_dropped);
        self.keep.retain(|layer| !dropped.contains(&layer));
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

#[cfg(test)]
mod tests;
