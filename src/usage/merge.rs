//! Joins usages of one model: what was profiled apart counts together.

use super::parts::{self, PartError};
use super::{Corpus, ExpertSums, LayerUsage, Run, Usage};
use crate::moe::RouterMatch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A joined usage, with what its user should know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Merged {
    /// The usage; its model is that of the first.
    pub usage: Usage,
    /// Remarks, one line each.
    pub remarks: Vec<String>,
}

/// Why usages cannot be joined.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// Nothing to join.
    #[error("there is no usage to merge")]
    Nothing,
    /// Usages of different models.
    #[error(
        "{} is the usage of {other} and {} that of {model}, which is another model: the routers differ",
        path.display(), first.display()
    )]
    OtherModel {
        /// The usage that does not fit.
        path: PathBuf,
        /// Its model.
        other: String,
        /// The first usage.
        first: PathBuf,
        /// Its model.
        model: String,
    },
    /// A layer that only some usages count.
    #[error("layer {layer} is counted in {} and not in {}: profile both with the same settings", with.display(), without.display())]
    Layer {
        /// The layer.
        layer: u32,
        /// A usage that counts it.
        with: PathBuf,
        /// One that does not.
        without: PathBuf,
    },
    /// A layer of different shape.
    #[error(
        "layer {layer}: {} counts {found} and {} counts {wanted}",
        path.display(), first.display()
    )]
    Shape {
        /// The layer.
        layer: u32,
        /// The usage that does not fit.
        path: PathBuf,
        /// Its experts, all and used.
        found: String,
        /// The first usage.
        first: PathBuf,
        /// Its experts, all and used.
        wanted: String,
    },
    /// The same text twice.
    #[error(
        "{} and {} both count {file} (in corpus {corpus:?}): merged, its tokens would count twice; leave one out",
        first.display(), second.display()
    )]
    Twice {
        /// A usage.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
        /// The corpus in the second.
        corpus: String,
        /// The file in the second.
        file: String,
    },
    /// Parts of a run that do not make it whole.
    #[error(transparent)]
    Part(#[from] PartError),
    /// More than can be counted.
    #[error("layer {layer}: the counts overflow when {} is added", path.display())]
    Overflow {
        /// The layer.
        layer: u32,
        /// The usage that was too much.
        path: PathBuf,
    },
}

/// Joins usages that [`Usage::check`] holds for; the paths serve the messages alone.
///
/// The parts of a run ([`Run::part`]) become that run first.
///
/// Corpora of the same name are added, in the order in which they were given. A text must not count twice: it does
/// when two usages have it in corpora of the same name, or have corpora of the very same texts. Gate weights stay
/// when every usage has them.
///
/// # Errors
/// When the usages are not of one model, or count the same text.
pub fn merge(usages: &[(PathBuf, Usage)]) -> Result<Merged, MergeError> {
    let had_parts = usages.iter().any(|(_, usage)| usage.run.part.is_some());
    let usages = &parts::joined(usages)?;
    if let ([(_, whole)], true) = (usages.as_slice(), had_parts) {
        return Ok(Merged { usage: whole.clone(), remarks: vec![] });
    }
    let Some(((first_path, first), rest)) = usages.split_first() else { return Err(MergeError::Nothing) };
    let mut remarks = vec![];
    for (path, usage) in rest {
        check_model(path, usage, first_path, first, &mut remarks)?;
        check_layers(path, usage, first_path, first)?;
    }
    check_texts(usages)?;
    let weighted = |usage: &Usage| usage.layers.iter().all(|layer| layer.total.weight.is_some());
    let without = usages.iter().find(|(_, usage)| !weighted(usage));
    let with_weights = without.is_none();
    let activated = |usage: &Usage| usage.layers.iter().all(|layer| layer.total.activation.is_some());
    let with_activations = usages.iter().all(|(_, usage)| activated(usage));
    if !with_activations && usages.iter().any(|(_, usage)| activated(usage)) {
        let without = usages.iter().find(|(_, usage)| !activated(usage)).map_or(first_path, |(path, _)| path);
        remarks.push(format!("{}: has no activations, so the merged usage has none", without.display()));
    }
    if let Some((path, _)) = without.filter(|_| usages.iter().any(|(_, usage)| weighted(usage))) {
        remarks.push(format!("{}: has no gate weights, so the merged usage has none", path.display()));
    }
    if let Some((path, usage)) = rest.iter().find(|(_, usage)| usage.run.ctx_size != first.run.ctx_size) {
        let (other, one) = (usage.run.ctx_size, first.run.ctx_size);
        remarks.push(format!(
            "{}: windows of {other} tokens, {} of {one}",
            path.display(),
            first_path.display()
        ));
    }

    let corpora = join_corpora(usages.iter().flat_map(|(_, usage)| &usage.corpora));
    let names: Vec<&str> = corpora.iter().map(|corpus| corpus.name.as_str()).collect();
    let mut layers = Vec::with_capacity(first.layers.len());
    for (at, layer) in first.layers.iter().enumerate() {
        let zero = || {
            let mut zero = ExpertSums::zero_like(&layer.total);
            zero.weight = zero.weight.filter(|_| with_weights);
            zero.activation = zero.activation.filter(|_| with_activations);
            zero
        };
        let mut sums: BTreeMap<String, ExpertSums> =
            names.iter().map(|&name| (name.to_owned(), zero())).collect();
        let mut total = zero();
        for (path, usage) in usages {
            let overflow = || MergeError::Overflow { layer: layer.layer, path: path.clone() };
            let more = &usage.layers[at];
            total.add(&more.total).ok_or_else(overflow)?;
            for (name, more) in &more.corpora {
                let sum = sums.get_mut(name).expect("all corpora of all usages are there");
                sum.add(more).ok_or_else(overflow)?;
            }
        }
        let halves = usages
            .iter()
            .map(|(_, usage)| usage.layers[at].half.clone().map(|half| without_weights(half, with_weights)));
        let half = halves.reduce(|a, b| LayerUsage::join_halves(a.as_ref(), b.as_ref())).flatten();
        layers.push(LayerUsage {
            layer: layer.layer,
            n_expert_used: layer.n_expert_used,
            total,
            corpora: sums,
            half,
            exact: None,
        });
    }
    let usage = Usage {
        schema: first.schema.clone(),
        model: first.model.clone(),
        run: Run {
            moeslice: env!("CARGO_PKG_VERSION").into(),
            // JSON has no infinity.
            wall_seconds: usages.iter().map(|(_, usage)| usage.run.wall_seconds).sum::<f64>().min(f64::MAX),
            merged_from: usages.iter().flat_map(|(_, usage)| runs(&usage.run)).collect(),
            imported_from: None,
            ..first.run.clone()
        },
        corpora,
        layers,
    };
    Ok(Merged { usage, remarks })
}

/// Drops gate weights that the merged usage does not have.
fn without_weights(
    mut half: BTreeMap<String, ExpertSums>,
    with_weights: bool,
) -> BTreeMap<String, ExpertSums> {
    if !with_weights {
        half.values_mut().for_each(|sums| sums.weight = None);
    }
    half
}

/// The runs behind a usage, which may be merged itself.
fn runs(run: &Run) -> Vec<Run> {
    if run.merged_from.is_empty() { vec![run.clone()] } else { run.merged_from.clone() }
}

/// Corpora of the same name become one, in the place of the first.
fn join_corpora<'a>(corpora: impl Iterator<Item = &'a Corpus>) -> Vec<Corpus> {
    let mut joined: Vec<Corpus> = vec![];
    for corpus in corpora {
        match joined.iter_mut().find(|other| other.name == corpus.name) {
            Some(same) => {
                same.files.extend(corpus.files.iter().cloned());
                // Tokens bound what the layers count, and those sums are checked.
                same.tokens = same.tokens.saturating_add(corpus.tokens);
                // The places of the windows are those of the files that each usage read.
                same.held_out = None;
            }
            None => joined.push(corpus.clone()),
        }
    }
    joined
}

fn check_model(
    path: &Path,
    usage: &Usage,
    first_path: &Path,
    first: &Usage,
    remarks: &mut Vec<String>,
) -> Result<(), MergeError> {
    let (model, first_model) = (&usage.model, &first.model);
    let routers = RouterMatch::of(
        (&model.router_hash, model.router_sketch.as_ref()),
        (&first_model.router_hash, first_model.router_sketch.as_ref()),
    );
    let Some(routers) = routers else {
        return Err(MergeError::OtherModel {
            path: path.into(),
            other: usage.model.file.clone(),
            first: first_path.into(),
            model: first.model.file.clone(),
        });
    };
    if usage.model.fingerprint != first.model.fingerprint {
        remarks.push(format!(
            "{}: made with {}, other bytes of the same model as {} ({})",
            path.display(),
            usage.model.file,
            first.model.file,
            match routers {
                RouterMatch::Same => "same routers",
                RouterMatch::Converted => "routers that agree to the precision of the coarser type",
            }
        ));
    }
    Ok(())
}

fn check_layers(path: &Path, usage: &Usage, first_path: &Path, first: &Usage) -> Result<(), MergeError> {
    for ((a_path, a), (b_path, b)) in
        [((path, usage), (first_path, first)), ((first_path, first), (path, usage))]
    {
        if let Some(layer) = a.layers.iter().find(|layer| b.layer(layer.layer).is_none()) {
            return Err(MergeError::Layer {
                layer: layer.layer,
                with: a_path.into(),
                without: b_path.into(),
            });
        }
    }
    for (a, b) in usage.layers.iter().zip(&first.layers) {
        let shape = |layer: &LayerUsage| (layer.total.count.len(), layer.n_expert_used);
        if shape(a) != shape(b) {
            let text = |layer| format!("{} experts, {} used", shape(layer).0, shape(layer).1);
            return Err(MergeError::Shape {
                layer: a.layer,
                path: path.into(),
                found: text(a),
                first: first_path.into(),
                wanted: text(b),
            });
        }
    }
    Ok(())
}

/// Refuses a text that two usages count: in corpora of one name, or in corpora of the same texts altogether. Corpora
/// of different names may share some, such as a licence in two folders. Empty files count nothing.
fn check_texts(usages: &[(PathBuf, Usage)]) -> Result<(), MergeError> {
    fn hashes(corpus: &Corpus) -> BTreeSet<&str> {
        corpus.files.iter().filter(|file| file.bytes > 0).map(|file| file.sha256.as_str()).collect()
    }
    for (at, (second, usage)) in usages.iter().enumerate() {
        for (first, earlier) in &usages[..at] {
            let pairs = usage.corpora.iter().flat_map(|b| earlier.corpora.iter().map(move |a| (a, b)));
            for (a, b) in pairs {
                let (known, new) = (hashes(a), hashes(b));
                if a.name != b.name && known != new {
                    continue;
                }
                let shared =
                    b.files.iter().find(|file| file.bytes > 0 && known.contains(file.sha256.as_str()));
                if let Some(file) = shared {
                    return Err(MergeError::Twice {
                        first: first.clone(),
                        second: second.clone(),
                        corpus: b.name.clone(),
                        file: file.path.clone(),
                    });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
