//! Usage from the GGUF that `llama-imatrix` writes: it counts, for each expert, the tokens that went through it.
//!
//! Beside the sums that quantisation needs, the file has for each weight matrix of the experts a tensor
//! `<name>.counts`, F32 [1, n_expert]: how many rows the expert was multiplied with, which is how often it was
//! selected. Gate weights are not recorded. Nothing ties the file to a model but the shapes, so a file that fits is
//! taken at its word, and the usage says where its figures come from.

mod error;

pub use error::ImatrixError;

use super::{Corpus, CorpusFile, ExpertSums, LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage};
use crate::digest;
use crate::gguf::{MAGIC, Model, Tensor, TensorType};
use crate::moe::{ExpertLayer, LayerKind, MoeModel, Role};
use crate::sys::name_of;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A usage that was not read from a usage file, with what its user should know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The usage; its only corpus is the imatrix file.
    pub usage: Usage,
    /// Remarks, one line each.
    pub remarks: Vec<String>,
}

/// Whether `path` is a GGUF file, and so can only be an imatrix where a usage is expected.
///
/// # Errors
/// When it cannot be read.
pub fn is_gguf(path: &Path) -> io::Result<bool> {
    let mut start = Vec::with_capacity(MAGIC.len());
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == MAGIC)
}

/// Reads the counts of the imatrix at `path` as the usage of `model`, for one corpus called `corpus`.
///
/// # Errors
/// When it is no imatrix, does not fit the model, or has no counts of its experts.
pub fn import(path: &Path, corpus: &str, model: &MoeModel) -> Result<Imported, ImatrixError> {
    let imatrix = Model::open(path)?;
    let kind = imatrix.metadata().get("general.type").and_then(|value| value.as_str());
    if kind != Some("imatrix") {
        return Err(ImatrixError::NotImatrix { path: path.into(), found: kind.map(str::to_owned) });
    }
    let reader = CountsReader { path, imatrix: &imatrix, model: &model.file };
    let mut layers = Vec::with_capacity(model.experts.layers.len());
    let mut uncounted = vec![];
    for layer in &model.experts.layers {
        match reader.layer(layer)? {
            Some(sums) => layers.push((layer, sums)),
            None if layer.kind == LayerKind::Mtp => {}
            None => uncounted.push(layer.layer),
        }
    }
    if layers.is_empty() {
        return Err(ImatrixError::NoCounts { path: path.into() });
    }
    if let Some(&layer) = uncounted.first() {
        return Err(ImatrixError::MissingLayer { path: path.into(), layer });
    }
    let all_alike = |sums: &ExpertSums| sums.count.iter().all(|count| *count == sums.count[0]);
    if layers.iter().all(|(layer, sums)| layer.n_expert_used < layer.n_expert && all_alike(sums)) {
        return Err(ImatrixError::EqualCounts { path: path.into() });
    }
    let tokens = layers.iter().map(|(_, sums)| sums.n_tokens).max().unwrap_or(0);
    let short: Vec<_> = layers.iter().filter(|(_, sums)| sums.n_tokens < tokens).collect();
    let mut remarks = vec![format!(
        "{}: counts of llama-imatrix; that it was made with this very model cannot be told, only that the shapes fit",
        path.display()
    )];
    remarks.extend(short.iter().map(|(layer, sums)| {
        format!("{}: layer {} counts {} of {tokens} tokens", path.display(), layer.layer, sums.n_tokens)
    }));
    let file = corpus_file(path)?;
    let usage = Usage {
        schema: USAGE_SCHEMA.into(),
        model: ProfiledModel::new(model.path(), &model.identity),
        run: reader.run(&file.path),
        corpora: vec![Corpus { name: corpus.into(), files: vec![file], tokens, held_out: None }],
        layers: layers
            .into_iter()
            .map(|(layer, sums)| LayerUsage {
                layer: layer.layer,
                n_expert_used: layer.n_expert_used,
                total: sums.clone(),
                corpora: BTreeMap::from([(corpus.to_owned(), sums)]),
                half: None,
                exact: None,
            })
            .collect(),
    };
    Ok(Imported { usage, remarks })
}

/// The file with its hash, by its name alone.
fn corpus_file(path: &Path) -> Result<CorpusFile, ImatrixError> {
    let hashed = File::open(path).and_then(digest::sha256_of_file);
    let (bytes, sha256) = hashed.map_err(|error| ImatrixError::Read { path: path.into(), error })?;
    Ok(CorpusFile { path: name_of(path), bytes, sha256, left_out: 0 })
}

struct CountsReader<'a> {
    path: &'a Path,
    imatrix: &'a Model,
    model: &'a Model,
}

impl CountsReader<'_> {
    /// How the figures came to be. What an imatrix does not record is 0.
    fn run(&self, file: &str) -> Run {
        let number = |key| self.imatrix.metadata().get(key).and_then(|value| value.as_u64());
        let (chunks, size) = (number("imatrix.chunk_count"), number("imatrix.chunk_size"));
        let texts: Vec<String> = match self.imatrix.metadata().get("imatrix.datasets") {
            Some(value) => value
                .as_array()
                .map(|array| array.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect())
                .unwrap_or_default(),
            None => vec![],
        };
        let mut from = format!("llama-imatrix, {file}");
        if let (Some(chunks), Some(size)) = (chunks, size) {
            from += &format!(", {chunks} chunks of {size} tokens");
        }
        if !texts.is_empty() {
            from += &format!(", from {}", texts.join(", "));
        }
        Run {
            moeslice: env!("CARGO_PKG_VERSION").into(),
            llama_cpp: None,
            imported_from: Some(from),
            devices: vec![],
            ctx_size: size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
            batch_size: 0,
            ubatch_size: 0,
            wall_seconds: 0.0,
            merged_from: vec![],
            ..Run::default()
        }
    }

    /// The counts of a layer; `None` when the imatrix has none of it.
    fn layer(&self, layer: &ExpertLayer) -> Result<Option<ExpertSums>, ImatrixError> {
        let mut found: Option<(&str, Vec<u64>)> = None;
        let matrices = layer
            .tensors
            .iter()
            .filter(|tensor| matches!(tensor.role, Role::Gate | Role::Up | Role::GateUp | Role::Down));
        for matrix in matrices {
            let weights = &self.model.tensors()[matrix.index];
            let Some(counts) = self.imatrix.tensor(&format!("{}.counts", weights.info.name)) else {
                continue;
            };
            self.check_row(weights)?;
            let counts_of = self.counts(counts, layer.n_expert)?;
            match &found {
                // All matrices of a layer are multiplied with the rows of the same experts.
                Some((first, other)) if *other != counts_of => {
                    return Err(ImatrixError::Disagree {
                        path: self.path.into(),
                        first: (*first).to_owned(),
                        second: counts.info.name.clone(),
                    });
                }
                Some(_) => {}
                None => found = Some((&counts.info.name, counts_of)),
            }
        }
        found.map(|(name, counts)| self.sums(name, counts, layer.n_expert_used)).transpose()
    }

    /// The input rows of a matrix must be as long as in the model.
    fn check_row(&self, weights: &Tensor) -> Result<(), ImatrixError> {
        let name = format!("{}.in_sum2", weights.info.name);
        match self.imatrix.tensor(&name) {
            Some(sums) if sums.info.dims[0] != weights.info.dims[0] => Err(ImatrixError::OtherShape {
                path: self.path.into(),
                tensor: name,
                found: sums.info.dims[0],
                wanted: weights.info.dims[0],
            }),
            _ => Ok(()),
        }
    }

    fn counts(&self, tensor: &Tensor, n_expert: u32) -> Result<Vec<u64>, ImatrixError> {
        let name = || tensor.info.name.clone();
        let (found, ty) = (tensor.info.elements(), tensor.info.ty);
        if ty != TensorType::F32 {
            return Err(ImatrixError::Type { path: self.path.into(), tensor: name(), found: ty.name() });
        }
        if found == 1 && n_expert > 1 {
            return Err(ImatrixError::EqualCounts { path: self.path.into() });
        }
        if found != u64::from(n_expert) {
            return Err(ImatrixError::ExpertCount {
                path: self.path.into(),
                tensor: name(),
                found,
                n_expert,
            });
        }
        // As many as the experts of the model, whose tensors were read.
        let mut data = vec![0; 4 * n_expert as usize];
        self.imatrix.read_exact_at(tensor, 0, &mut data)?;
        let (values, _) = data.as_chunks::<4>();
        let value = |(expert, bytes): (usize, &[u8; 4])| {
            let value = f32::from_le_bytes(*bytes);
            // 2^63 is the first that an i64, in which llama-imatrix counts, cannot hold.
            if value >= 0.0 && value.fract() == 0.0 && value < 9_223_372_036_854_775_808.0 {
                Ok(value as u64)
            } else {
                Err(ImatrixError::Value { path: self.path.into(), tensor: name(), expert, value })
            }
        };
        values.iter().enumerate().map(value).collect()
    }

    /// The sums of a layer whose experts were selected `n_expert_used` a token.
    fn sums(
        &self,
        tensor: &str,
        mut count: Vec<u64>,
        n_expert_used: u32,
    ) -> Result<ExpertSums, ImatrixError> {
        let fail = |sum| ImatrixError::NotWhole {
            path: self.path.into(),
            tensor: tensor.into(),
            sum,
            n_expert_used,
        };
        let used = u64::from(n_expert_used);
        let sum = count
            .iter()
            .try_fold(0u64, |sum, &count| sum.checked_add(count))
            .ok_or_else(|| fail(u64::MAX))?;
        let n_tokens = sum / used + u64::from(sum % used > used / 2);
        let wanted = n_tokens.checked_mul(used).ok_or_else(|| fail(sum))?;
        settle_rounding(&mut count, i128::from(wanted) - i128::from(sum)).ok_or_else(|| fail(sum))?;
        if count.iter().any(|&count| count > n_tokens) {
            return Err(fail(sum));
        }
        Ok(ExpertSums { n_tokens, count, weight: None, activation: None })
    }
}

/// Adds `missing` to counts that F32 has rounded, so that they add up again, to none more than its rounding can have
/// been; `None` when that is not enough.
///
/// A count of 2^24 or more was rounded by up to half the distance of its neighbours in F32.
fn settle_rounding(count: &mut [u64], mut missing: i128) -> Option<()> {
    let mut rounded: Vec<usize> = (0..count.len()).filter(|&at| count[at] >= 1 << 24).collect();
    rounded.sort_by_key(|&at| std::cmp::Reverse(count[at]));
    for at in rounded {
        let half = 1i128 << (count[at].ilog2() - 24);
        let part = missing.clamp(-half, half);
        count[at] = u64::try_from(i128::from(count[at]) + part).ok()?;
        missing -= part;
    }
    (missing == 0).then_some(())
}

#[cfg(test)]
mod tests;
