//! A run that was shared out: each part profiled every Nth batch, and all together say what one run would.

use super::{ExactSums, ExpertSums, LayerUsage, Part, Run, Usage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why parts do not make a whole.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// Parts of different runs.
    #[error(
        "{} and {} are not parts of one run: {what} is {found} in the first, and {wanted} in the second",
        path.display(), first.display()
    )]
    OtherRun {
        /// The part that does not fit.
        path: PathBuf,
        /// The first part that was given.
        first: PathBuf,
        /// What is different.
        what: &'static str,
        /// Its value.
        found: String,
        /// That of the first part.
        wanted: String,
    },
    /// The same part again.
    #[error("{} and {} are both {part}", first.display(), second.display())]
    Twice {
        /// The part.
        part: String,
        /// A usage.
        first: PathBuf,
        /// Another one.
        second: PathBuf,
    },
    /// Parts that were not given.
    #[error("of {of} parts, {} {} missing", list(missing), if missing.len() == 1 { "is" } else { "are" })]
    Missing {
        /// Their numbers.
        missing: Vec<u32>,
        /// How many there are.
        of: u32,
    },
    /// A part without what it takes to add it up.
    #[error("{}: a part of a run, and has no exact sums: profile it again", path.display())]
    NoSums {
        /// The part.
        path: PathBuf,
    },
    /// Parts that do not add up.
    #[error("the parts have {found} tokens together, and should have {wanted}: their texts are not the same")]
    Tokens {
        /// What they have.
        found: u64,
        /// What each of them says that all have.
        wanted: u64,
    },
    /// More than can be counted.
    #[error("layer {layer}: the parts cannot be added up")]
    Sums {
        /// The layer.
        layer: u32,
    },
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Usage {
    /// What is to be said of a usage that is a part of a run.
    pub fn incomplete(&self) -> Option<String> {
        let part = self.run.part.as_ref()?;
        let others = part.of.saturating_sub(1);
        Some(format!(
            "this is {part} of a run: it knows a share of the text alone; merge it with the other {others}"
        ))
    }
}

/// Joins the parts among `usages` to the usage of their run, which comes in the place of the first; other usages stay.
pub(super) fn joined(usages: &[(PathBuf, Usage)]) -> Result<Vec<(PathBuf, Usage)>, PartError> {
    let is_part = |(_, usage): &&(PathBuf, Usage)| usage.run.part.is_some();
    let parts: Vec<&(PathBuf, Usage)> = usages.iter().filter(is_part).collect();
    let Some(first) = parts.first() else { return Ok(usages.to_vec()) };
    let whole = whole(&parts)?;
    let at = usages.iter().position(|usage| std::ptr::eq(usage, *first)).unwrap_or(0);
    let mut all: Vec<(PathBuf, Usage)> = usages.iter().filter(|usage| !is_part(usage)).cloned().collect();
    all.insert(at.min(all.len()), (first.0.clone(), whole));
    Ok(all)
}

fn whole(parts: &[&(PathBuf, Usage)]) -> Result<Usage, PartError> {
    let (first_path, first) = parts[0];
    let Some(wanted) = &first.run.part else { return Ok(first.clone()) };
    let mut by_index: BTreeMap<u32, &(PathBuf, Usage)> = BTreeMap::new();
    for one in parts {
        let (path, usage) = one;
        check_run((path, usage), (first_path, first))?;
        let Some(part) = &usage.run.part else { continue };
        if let Some((other, _)) = by_index.insert(part.index, one) {
            let (first, second) = (other.clone(), path.clone());
            return Err(PartError::Twice { part: part.to_string(), first, second });
        }
    }
    let missing: Vec<u32> = (1..=wanted.of).filter(|index| !by_index.contains_key(index)).collect();
    if !missing.is_empty() {
        return Err(PartError::Missing { missing, of: wanted.of });
    }
    // In their order, whichever was given first.
    let parts: Vec<&(PathBuf, Usage)> = by_index.into_values().collect();
    let mut corpora = first.corpora.clone();
    for (at, corpus) in corpora.iter_mut().enumerate() {
        let of_parts = parts.iter().filter_map(|(_, usage)| Some(usage.corpora.get(at)?.tokens));
        corpus.tokens = of_parts.fold(0, u64::saturating_add);
    }
    let found = corpora.iter().map(|corpus| corpus.tokens).fold(0, u64::saturating_add);
    if found != wanted.tokens {
        return Err(PartError::Tokens { found, wanted: wanted.tokens });
    }
    corpora.retain(|corpus| corpus.tokens > 0);
    let numbers: BTreeSet<u32> =
        parts.iter().flat_map(|(_, usage)| usage.layers.iter().map(|layer| layer.layer)).collect();
    let layers = numbers.into_iter().map(|layer| {
        let counted = |name: &str| corpora.iter().any(|corpus| corpus.name == name);
        join_layer(layer, &parts, &counted)
    });
    let layers = layers.collect::<Result<Vec<_>, PartError>>()?;
    let wall_seconds = parts.iter().map(|(_, usage)| usage.run.wall_seconds).sum::<f64>().min(f64::MAX);
    let run = Run {
        moeslice: env!("CARGO_PKG_VERSION").into(),
        part: None,
        ubatches: parts
            .iter()
            .map(|(_, usage)| usage.run.ubatches)
            .try_fold(0_u64, |sum, more| Some(sum.saturating_add(more?))),
        largest_ubatch: parts.iter().filter_map(|(_, usage)| usage.run.largest_ubatch).max(),
        wall_seconds,
        merged_from: parts.iter().map(|(_, usage)| usage.run.clone()).collect(),
        ..first.run.clone()
    };
    Ok(Usage { schema: first.schema.clone(), model: first.model.clone(), run, corpora, layers })
}

fn join_layer(
    layer: u32,
    parts: &[&(PathBuf, Usage)],
    counted: &dyn Fn(&str) -> bool,
) -> Result<LayerUsage, PartError> {
    let overflow = || PartError::Sums { layer };
    let mut sums: BTreeMap<String, [ExactSums; 2]> = BTreeMap::new();
    let mut n_expert_used = 0;
    for (path, usage) in parts {
        // A layer of which a part saw no token is not in it.
        let Some(of_part) = usage.layer(layer) else { continue };
        n_expert_used = of_part.n_expert_used;
        let exact = of_part.exact.as_ref().ok_or_else(|| PartError::NoSums { path: path.clone() })?;
        for (name, halves) in exact.iter().filter(|(name, _)| counted(name)) {
            match sums.get_mut(name) {
                Some(known) => {
                    for (known, more) in known.iter_mut().zip(halves) {
                        known.join(more).ok_or_else(overflow)?;
                    }
                }
                None => drop(sums.insert(name.clone(), halves.clone())),
            }
        }
    }
    LayerUsage::of_halves(layer, n_expert_used, &sums).ok_or_else(overflow)
}

/// A figure of a run, as people read it.
type Figure<'f> = &'f dyn Fn(&Usage) -> String;

/// Checks that two parts were computed alike, from the same texts.
fn check_run((path, usage): (&Path, &Usage), (first_path, first): (&Path, &Usage)) -> Result<(), PartError> {
    let columns = |usage: &Usage| {
        let layer = usage.layers.first();
        let has = |of: fn(&LayerUsage) -> bool| layer.is_some_and(of);
        match (has(|layer| layer.total.weight.is_some()), has(|layer| layer.total.activation.is_some())) {
            (_, true) => "full",
            (true, false) => "weights",
            (false, false) => "counts",
        }
    };
    let texts = |usage: &Usage| {
        let corpus = |corpus: &super::Corpus| {
            let held_out = corpus.held_out.map(|held| format!(" one in {} of {}", held.every, held.of));
            format!("{} {}{}", corpus.name, corpus.sha256(), held_out.unwrap_or_default())
        };
        usage.corpora.iter().map(corpus).collect::<Vec<_>>().join(", ")
    };
    let part = |usage: &Usage, of: fn(&Part) -> String| usage.run.part.as_ref().map(of).unwrap_or_default();
    let of_run: [(&'static str, Figure<'_>); 13] = [
        ("the model", &|usage| format!("{} ({})", usage.model.file, usage.model.fingerprint)),
        ("the number of parts", &|usage| part(usage, |part| part.of.to_string())),
        ("-c", &|usage| usage.run.ctx_size.to_string()),
        ("-b", &|usage| usage.run.batch_size.to_string()),
        ("-ub", &|usage| usage.run.ubatch_size.to_string()),
        ("the device", &|usage| usage.run.devices.join(", ")),
        ("--kv-unified", &|usage| usage.run.kv_unified.unwrap_or(false).to_string()),
        ("llama.cpp", &|usage| usage.run.llama_cpp.clone().unwrap_or_default()),
        ("a setting", &|usage| part(usage, |part| part.settings.join(", "))),
        ("a variable", &|usage| usage.run.variables.join(", ")),
        ("--score-data", &|usage| columns(usage).to_owned()),
        ("the number of batches", &|usage| part(usage, |part| part.batches.to_string())),
        ("the text", &texts),
    ];
    for (what, value) in of_run {
        let (found, wanted) = (value(usage), value(first));
        if found != wanted {
            let (path, first) = (path.to_owned(), first_path.to_owned());
            return Err(PartError::OtherRun { path, first, what, found, wanted });
        }
    }
    Ok(())
}

impl LayerUsage {
    /// The layer of these corpora, each with the sums of the first half of its windows and of the second. The halves are
    /// not told where one of them has no token at all. `None` when a sum overflows.
    pub fn of_halves(
        layer: u32,
        n_expert_used: u32,
        corpora: &BTreeMap<String, [ExactSums; 2]>,
    ) -> Option<LayerUsage> {
        let total = |half: usize| corpora.values().map(|sums| sums[half].n_tokens).max().unwrap_or(0);
        let apart = total(0) > 0 && total(1) > 0;
        let (mut all, mut first_half) = (BTreeMap::new(), BTreeMap::new());
        for (name, [first, second]) in corpora {
            let first = first.rounded();
            let mut sums = first.clone();
            sums.add(&second.rounded())?;
            all.insert(name.clone(), sums);
            first_half.insert(name.clone(), first);
        }
        let mut sum: Option<ExpertSums> = None;
        for sums in all.values() {
            sum.get_or_insert_with(|| ExpertSums::zero_like(sums)).add(sums)?;
        }
        let half = apart.then_some(first_half);
        Some(LayerUsage { layer, n_expert_used, total: sum?, corpora: all, half, exact: None })
    }

    /// Checks the exact sums against those that everybody reads.
    pub(super) fn check_exact(&self) -> Result<(), String> {
        let Some(exact) = &self.exact else { return Ok(()) };
        let whole = LayerUsage::of_halves(self.layer, self.n_expert_used, exact);
        let same = |whole: &LayerUsage| {
            (&whole.total, &whole.corpora, &whole.half) == (&self.total, &self.corpora, &self.half)
        };
        match whole.as_ref().is_some_and(same) {
            true => Ok(()),
            false => Err(format!("layer {}: its exact sums are not those of its corpora", self.layer)),
        }
    }
}
