//! Usage files as commands take them.

use super::cut::remark_kinship;
use super::failure::Failure;
use super::source::Source;
use crate::profile::Usage;
use std::path::Path;

/// Reads the usage in `path`, and checks that it is that of the model.
pub fn open(path: &Path, source: &Source, quiet: bool) -> Result<Usage, Failure> {
    let usage = Usage::read(path).map_err(Failure::input)?;
    let kinship = usage.kinship(&source.identity, path, source.model.path()).map_err(Failure::input)?;
    remark_kinship(kinship, quiet);
    Ok(usage)
}
