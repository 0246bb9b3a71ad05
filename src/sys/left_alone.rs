//! Files that are left as they are, and told of.

use std::path::PathBuf;

/// A hidden file, or a file that a killed run replaced, that stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// The file.
    pub path: PathBuf,
    /// Why nothing was done to it.
    pub why: String,
}

impl std::fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "left alone: {} {}", self.path.display(), self.why)
    }
}
