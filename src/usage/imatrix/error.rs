use crate::gguf::GgufError;
use std::path::PathBuf;
use thiserror::Error;

/// Why an imatrix cannot be taken for a usage.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImatrixError {
    /// Not a sound GGUF file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file cannot be read.
    #[error("{}: cannot read the imatrix: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A GGUF file of another kind.
    #[error(
        "{}: not an imatrix: general.type is {}; a usage is a file of moeslice or the GGUF of llama-imatrix",
        path.display(), found.as_deref().map_or("absent".into(), |found| format!("{found:?}"))
    )]
    NotImatrix {
        /// The file.
        path: PathBuf,
        /// Its `general.type`.
        found: Option<String>,
    },
    /// Nothing about the experts of the model.
    #[error("{}: has no counts of the experts of this model: made with another model, or with a dense one", path.display())]
    NoCounts {
        /// The file.
        path: PathBuf,
    },
    /// Some layers are there and one is not.
    #[error("{}: has no counts of layer {layer}, which has experts: incomplete, or made with another model", path.display())]
    MissingLayer {
        /// The file.
        path: PathBuf,
        /// The first such layer.
        layer: u32,
    },
    /// One count for all experts.
    #[error(
        "{}: the counts of all experts are equal, as in a file converted from the old .dat format, which does not \
         count experts apart: make the imatrix again",
        path.display()
    )]
    EqualCounts {
        /// The file.
        path: PathBuf,
    },
    /// Another width than the model's.
    #[error("{}: {tensor} has rows of {found}, those of the model have {wanted}: made with another model", path.display())]
    OtherShape {
        /// The file.
        path: PathBuf,
        /// The tensor in the imatrix.
        tensor: String,
        /// Its row length.
        found: u64,
        /// That of the model.
        wanted: u64,
    },
    /// Another number of experts than the model's.
    #[error("{}: {tensor} counts {found} experts, the model has {n_expert}: made with another model", path.display())]
    ExpertCount {
        /// The file.
        path: PathBuf,
        /// The tensor in the imatrix.
        tensor: String,
        /// Experts that it counts.
        found: u64,
        /// Experts of the model's layer.
        n_expert: u32,
    },
    /// Counts of another type.
    #[error("{}: {tensor} is of type {found}, llama-imatrix writes F32: the file is damaged", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        found: &'static str,
    },
    /// A value that is no count.
    #[error("{}: {tensor}: the count of expert {expert} is {value}: the file is damaged", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The expert.
        expert: usize,
        /// The value.
        value: f32,
    },
    /// Two matrices of one layer disagree.
    #[error("{}: {first} and {second} count differently: the file is damaged", path.display())]
    Disagree {
        /// The file.
        path: PathBuf,
        /// A tensor.
        first: String,
        /// One of the same layer.
        second: String,
    },
    /// The counts are not those of whole tokens.
    #[error(
        "{}: {tensor}: {sum} selections are not {n_expert_used} different experts for each of a number of tokens: the file \
         is damaged, or made with another model or another number of used experts",
        path.display()
    )]
    NotWhole {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Sum of its counts.
        sum: u64,
        /// Experts used for a token.
        n_expert_used: u32,
    },
}
