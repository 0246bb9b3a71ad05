//! Slicing an importance matrix as its model was sliced, so that the cut can be requantised.
//!
//! `llama-imatrix` writes, for each weight matrix of the experts, `<name>.in_sum2` `[n_in, n_expert]`, `<name>.counts`
//! `[1, n_expert]`, and in newer versions `<name>.in_sum`, of the shape of the first, and `<name>.stats`. The rows of the
//! experts that stayed are copied by the id map of the cut. The statistics, which no quantisation reads, are those of all
//! experts together and cannot be told for some of them, so they are left out. All else is the same bytes.

use crate::gguf::{GgufError, Model, Tensor, TensorInfo, write_model};
use crate::moe::{Experts, IdMap, IdMapError, MoeModel, Role};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Sums of squared inputs, a row an expert.
const SQUARES: &str = ".in_sum2";
/// Sums of inputs.
const SUMS: &str = ".in_sum";
/// Tokens, one number an expert.
const COUNTS: &str = ".counts";
/// Statistics of a whole matrix.
const STATS: &str = ".stats";

/// A sliced importance matrix.
#[derive(Clone, Debug)]
pub struct SlicedImatrix {
    /// The file.
    pub bytes: Vec<u8>,
    /// Matrices of experts that were sliced.
    pub sliced: usize,
    /// Remarks, one line each.
    pub remarks: Vec<String>,
}

/// Why an importance matrix cannot be sliced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImatrixSliceError {
    /// Not a sound GGUF file, or it cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The id map of the model is damaged.
    #[error(transparent)]
    Ids(#[from] IdMapError),
    /// The model was not cut.
    #[error("{}: no experts were cut out of it: it takes the importance matrix of its base as that is", path.display())]
    NotCut {
        /// The model.
        path: PathBuf,
    },
    /// A GGUF file of another kind.
    #[error("{}: not an imatrix: general.type is {}", path.display(), found.as_deref().map_or("absent".into(), |found| format!("{found:?}")))]
    NotImatrix {
        /// The file.
        path: PathBuf,
        /// Its `general.type`.
        found: Option<String>,
    },
    /// Another shape than that of the model before its first cut.
    #[error(
        "{}: {tensor} has {found} rows of {row}, the model had {n_expert} experts of {wanted} before it was cut: made with another model",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor in the imatrix.
        tensor: String,
        /// Its rows.
        found: u64,
        /// Their length.
        row: u64,
        /// Experts of the layer before the first cut.
        n_expert: u32,
        /// Length of an input row of the model.
        wanted: u64,
    },
    /// Nothing about the experts of the model.
    #[error("{}: has nothing about the experts of this model: made with another model, or with a dense one", path.display())]
    NoExperts {
        /// The file.
        path: PathBuf,
    },
}

/// Slices the importance matrix at `path`, that of the model before its first cut, as `pruned` was.
///
/// # Errors
/// When the model was not cut, or the file is not an imatrix that fits it.
pub fn slice_imatrix(path: &Path, pruned: &MoeModel) -> Result<SlicedImatrix, ImatrixSliceError> {
    let experts = &pruned.experts;
    if !IdMap::is_in(&pruned.file) {
        return Err(ImatrixSliceError::NotCut { path: pruned.path().into() });
    }
    let ids = IdMap::read(&pruned.file, experts)?;
    let imatrix = Model::open(path)?;
    let kind = imatrix.metadata().get("general.type").and_then(|value| value.as_str());
    if kind != Some("imatrix") {
        return Err(ImatrixSliceError::NotImatrix { path: path.into(), found: kind.map(str::to_owned) });
    }
    let matrices = matrices(pruned, experts);
    let mut tensors = Vec::with_capacity(imatrix.tensors().len());
    let (mut sliced, mut left_out) = (0, Vec::new());
    for tensor in imatrix.tensors() {
        let name = &tensor.info.name;
        let (weights, suffix) = [SQUARES, SUMS, COUNTS, STATS]
            .iter()
            .find_map(|suffix| Some((name.strip_suffix(suffix)?, *suffix)))
            .unwrap_or((name, ""));
        if is_gone(weights, experts) {
            left_out.push(weights);
            continue;
        }
        let mut data = read(&imatrix, tensor)?;
        let mut info = tensor.info.clone();
        if let Some(&(layer, n_in)) = matrices.get(weights) {
            if suffix == STATS {
                continue;
            }
            let originals = ids.layer(layer).unwrap_or_default();
            let uneven = experts.arch.is_some_and(|arch| arch.per_layer_experts);
            let rows = Rows { originals, n_expert: ids.original_count(), uneven, n_in };
            data = rows.of(path, &mut info, &data, suffix)?;
            sliced += usize::from(suffix == SQUARES);
        }
        tensors.push((info, data));
    }
    if sliced == 0 {
        return Err(ImatrixSliceError::NoExperts { path: path.into() });
    }
    let mut remarks = Vec::new();
    if let Some(first) = left_out.first() {
        remarks.push(format!(
            "{}: {first} and what else is of blocks that the model no longer has is left out",
            path.display()
        ));
    }
    let missing = matrices.len().saturating_sub(sliced);
    if missing > 0 {
        remarks.push(format!(
            "{}: has nothing about {missing} of {} matrices of experts",
            path.display(),
            matrices.len()
        ));
    }
    let mut bytes = Vec::new();
    write_model(&mut bytes, imatrix.metadata(), &tensors)?;
    Ok(SlicedImatrix { bytes, sliced, remarks })
}

/// The weight matrices of the experts by name: their layer, and the length of their input rows.
fn matrices<'m>(pruned: &'m MoeModel, experts: &Experts) -> BTreeMap<&'m str, (u32, u64)> {
    let tensors =
        experts.layers.iter().flat_map(|layer| layer.tensors.iter().map(move |tensor| (layer.layer, tensor)));
    tensors
        .filter(|(_, tensor)| matches!(tensor.role, Role::Gate | Role::Up | Role::GateUp | Role::Down))
        .map(|(layer, tensor)| {
            let info = &pruned.file.tensors()[tensor.index].info;
            (info.name.as_str(), (layer, info.dims.first().copied().unwrap_or(0)))
        })
        .collect()
}

/// Whether a tensor belongs to a block behind those that the model has.
fn is_gone(weights: &str, experts: &Experts) -> bool {
    let block = weights.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
    block.and_then(|number| number.parse::<u32>().ok()).is_some_and(|block| block >= experts.n_layer)
}

fn read(imatrix: &Model, tensor: &Tensor) -> Result<Vec<u8>, GgufError> {
    // The header was checked: the file has that many bytes.
    let mut data = vec![0; usize::try_from(tensor.info.bytes()).unwrap_or(usize::MAX)];
    imatrix.read_exact_at(tensor, 0, &mut data)?;
    Ok(data)
}

/// The experts of a layer.
struct Rows<'a> {
    /// Their ids before the first cut.
    originals: &'a [u32],
    /// Experts of the largest layer before the first cut.
    n_expert: u32,
    /// Whether a layer may have had fewer.
    uneven: bool,
    /// Length of an input row.
    n_in: u64,
}

impl Rows<'_> {
    /// The rows of the experts that stayed.
    fn of(
        &self,
        path: &Path,
        info: &mut TensorInfo,
        data: &[u8],
        suffix: &str,
    ) -> Result<Vec<u8>, ImatrixSliceError> {
        let wanted = if suffix == COUNTS { 1 } else { self.n_in };
        let [row, found] = [0, 1].map(|at| info.dims.get(at).copied().unwrap_or(1));
        let known = self.originals.iter().all(|&id| u64::from(id) < found);
        let whole = found == u64::from(self.n_expert) || self.uneven && found < u64::from(self.n_expert);
        if row != wanted || !known || !whole || info.dims.iter().skip(2).any(|&dim| dim != 1) {
            let (tensor, n_expert) = (info.name.clone(), self.n_expert);
            return Err(ImatrixSliceError::Shape { path: path.into(), tensor, found, row, n_expert, wanted });
        }
        // A layer has at most the 1024 experts that llama.cpp has room for.
        let bytes = data.len() / found.max(1) as usize;
        info.dims[1] = self.originals.len() as u64;
        let slab = |&id: &u32| data.get(id as usize * bytes..(id as usize + 1) * bytes).unwrap_or_default();
        Ok(self.originals.iter().flat_map(slab).copied().collect())
    }
}

#[cfg(test)]
mod tests;
