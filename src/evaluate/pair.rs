//! Whether two models can be compared token by token.

use crate::moe::{MoeModel, Provenance};
use std::path::PathBuf;
use thiserror::Error;

/// Two models whose predictions have nothing to do with each other.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{model} and {base} do not belong together: {what}; a base is the model that was cut, or another quantisation of it"
)]
pub struct NotOfOneModel {
    /// The model.
    pub model: PathBuf,
    /// What was to be its base.
    pub base: PathBuf,
    /// What is different.
    pub what: String,
}

/// Checks that `base` can be the base of `model`; the remark says what is not certain.
///
/// # Errors
/// When architecture, number of layers or vocabulary differ, or `model` says that it was cut from a model that has other
/// experts than `base`.
pub fn check_base(model: &MoeModel, base: &MoeModel) -> Result<Option<String>, NotOfOneModel> {
    let differ = |what: String| NotOfOneModel { model: model.path().into(), base: base.path().into(), what };
    let (ours, theirs) = (&model.identity, &base.identity);
    if ours.architecture != theirs.architecture {
        return Err(differ(format!(
            "their architectures are {} and {}",
            ours.architecture, theirs.architecture
        )));
    }
    let blocks = |model: &MoeModel| model.experts.n_layer + model.experts.mtp_dropped;
    if model.experts.layers.iter().map(|layer| layer.layer).ne(base
        .experts
        .layers
        .iter()
        .map(|layer| layer.layer)
        .filter(|&layer| model.experts.layer(layer).is_some() || layer < model.experts.n_layer))
    {
        return Err(differ(format!(
            "they have {} and {} blocks, or experts in others",
            blocks(model),
            blocks(base)
        )));
    }
    for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"] {
        if model.file.metadata().raw(key) != base.file.metadata().raw(key) {
            return Err(differ(format!("their vocabularies differ ({key})")));
        }
    }
    if theirs.n_expert < ours.n_expert {
        let (n, more) = (theirs.n_expert, ours.n_expert);
        return Err(differ(format!("the base has {n} experts a layer, fewer than the {more} of the model")));
    }
    let Some(provenance) = Provenance::read(model.file.metadata()) else {
        let unknown = ours.router_hash != theirs.router_hash;
        return Ok(unknown.then(|| {
            format!(
                "{} does not say what it was cut from, and has other routers than the base",
                model.path().display()
            )
        }));
    };
    let base_origin = Provenance::origin(base.file.metadata()).unwrap_or_else(|| theirs.fingerprint.clone());
    let known = [&provenance.source_fingerprint, &provenance.original_fingerprint];
    if known.contains(&&theirs.fingerprint) || provenance.original_fingerprint == base_origin {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} was cut from other bytes than {}: the figures hold the difference between those too",
        model.path().display(),
        base.path().display()
    )))
}
