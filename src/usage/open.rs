//! A usage of either kind, read for a model at hand.

use super::file::FORMAT;
use super::imatrix::{self, ImatrixError, Imported};
use super::{Usage, UsageError};
use crate::moe::MoeModel;
use std::path::Path;
use thiserror::Error;

/// Why there is no usage for the model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The usage file.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The imatrix.
    #[error(transparent)]
    Imatrix(#[from] ImatrixError),
}

/// Reads the usage of `model` at `path`: a usage file, which must be of this model, or an imatrix of `llama-imatrix`,
/// whose only corpus is called by the stem of the file. The remarks say what is not as usual.
///
/// # Errors
/// When the file cannot be used with this model.
pub fn open(path: &Path, model: &MoeModel) -> Result<Imported, OpenError> {
    let read = |error| UsageError::from(FORMAT.unreadable(path, error));
    if imatrix::is_gguf(path).map_err(read)? {
        let corpus = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        return Ok(imatrix::import(path, &corpus, model)?);
    }
    let usage = Usage::read(path)?;
    let model_match = usage.model_match(&model.identity, path, model.path())?;
    let remarks = [model_match.remark().map(str::to_owned), usage.incomplete()];
    let remarks =
        remarks.into_iter().flatten().map(|remark| format!("{}: {remark}", path.display())).collect();
    Ok(Imported { usage, remarks })
}
