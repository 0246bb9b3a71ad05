//! What differs, and where.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::VerifyError;

/// The place of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Where {
    /// A metadata entry.
    Metadata {
        /// Its key.
        key: String,
    },
    /// A tensor as a whole: its presence, its place in the list, its shape, its type.
    Tensor {
        /// The tensor.
        tensor: String,
    },
    /// A byte of a tensor that is copied whole.
    Byte {
        /// The tensor.
        tensor: String,
        /// Position of the first byte that differs, from the start of the tensor.
        byte: u64,
    },
    /// A byte of an expert.
    Slab {
        /// The tensor.
        tensor: String,
        /// The expert's id in the base.
        expert: u32,
        /// The expert's id in the pruned model.
        pruned_expert: u32,
        /// Position of the first byte that differs, from the start of the expert.
        byte: u64,
    },
    /// The row of a token in a table of expert ids.
    Token {
        /// The table.
        tensor: String,
        /// The token.
        token: u64,
    },
    /// The bytes between two tensors.
    Padding {
        /// The tensor before.
        tensor: String,
    },
    /// A file as a whole.
    File {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata { key } => write!(f, "metadata {key}"),
            Self::Tensor { tensor } => write!(f, "tensor {tensor}"),
            Self::Byte { tensor, byte } => write!(f, "tensor {tensor}, byte {byte}"),
            Self::Slab { tensor, expert, pruned_expert, byte } => {
                write!(f, "tensor {tensor}, expert {expert} (now {pruned_expert}), byte {byte}")
            }
            Self::Token { tensor, token } => write!(f, "tensor {tensor}, token {token}"),
            Self::Padding { tensor } => write!(f, "padding after tensor {tensor}"),
            Self::File { path } => write!(f, "file {}", path.display()),
        }
    }
}

/// One difference between a pruned model and what its base makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where it is.
    #[serde(flatten)]
    pub place: Where,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// All differences: the first, and how many more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differences {
    /// The first: metadata come before tensors, tensors in the order of the base.
    pub first: Difference,
    /// How many more metadata entries, tensors, experts of tensors, tokens and paddings differ.
    pub others: u64,
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.others {
            0 => Ok(()),
            1 => write!(f, " (and 1 more difference)"),
            n => write!(f, " (and {n} more differences)"),
        }
    }
}

/// Keeps the first difference and counts the others.
#[derive(Debug, Default)]
pub(super) struct Collector {
    found: Option<Differences>,
}

impl Collector {
    pub(super) fn add(&mut self, place: Where, what: impl Into<String>) {
        match &mut self.found {
            Some(found) => found.others += 1,
            None => {
                let first = Difference { place, what: what.into() };
                self.found = Some(Differences { first, others: 0 });
            }
        }
    }

    /// What was found, and then what the other found.
    pub(super) fn followed_by(self, later: Self) -> Self {
        let found = match (self.found, later.found) {
            (Some(found), Some(later)) => {
                Some(Differences { others: found.others + 1 + later.others, ..found })
            }
            (found, later) => found.or(later),
        };
        Self { found }
    }

    pub(super) fn finish(self) -> Result<(), VerifyError> {
        self.found.map_or(Ok(()), |found| Err(VerifyError::Differs(Box::new(found))))
    }
}
