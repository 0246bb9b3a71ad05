use std::path::PathBuf;

use thiserror::Error;

use crate::gguf::GgufError;

/// Why the experts of a model cannot be told from its file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MoeError {
    /// The file could not be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Neither an expert count nor an expert tensor.
    #[error("{}: not a Mixture-of-Experts model (architecture {architecture})", file.display())]
    NotMoe {
        /// The model.
        file: PathBuf,
        /// Its `general.architecture`.
        architecture: String,
    },
    /// One tensor an expert, as files were written before 2024.
    #[error(
        "{}: {tensor} holds a single expert; llama.cpp no longer loads this form: convert the model again",
        file.display()
    )]
    PerExpertTensors {
        /// The model.
        file: PathBuf,
        /// The first such tensor.
        tensor: String,
    },
    /// Expert tensors, but no count of experts.
    #[error("{}: has the expert tensor {tensor} but no {key}: convert the model again", file.display())]
    NoExpertCount {
        /// The model.
        file: PathBuf,
        /// The first expert tensor.
        tensor: String,
        /// The key that should tell their number.
        key: String,
    },
    /// A count of experts, but no expert tensor.
    #[error("{}: {key} is {count} but no layer has experts: the file is incomplete", file.display())]
    NoExpertTensors {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        count: u32,
    },
    /// A key that llama.cpp needs is absent.
    #[error("{}: has no {key}: convert the model again", file.display())]
    MissingKey {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A key holds a value of a type that llama.cpp does not take.
    #[error("{}: {key} is of type {found}, llama.cpp takes {wanted} only: convert the model again", file.display())]
    KeyType {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
        /// The type in the file.
        found: String,
        /// The types that llama.cpp takes.
        wanted: &'static str,
    },
    /// A key holds a number that makes llama.cpp abort or compute nonsense.
    #[error("{}: {key} is {value}, but {rule}: the metadata are damaged", file.display())]
    KeyValue {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
        /// The number.
        value: u64,
        /// What the number has to be.
        rule: String,
    },
    /// An array with one entry a layer has another length.
    #[error(
        "{}: {key} has {len} entries for {n_layer} layers: the metadata are damaged",
        file.display()
    )]
    KeyLength {
        /// The model.
        file: PathBuf,
        /// The key.
        key: String,
        /// Its entries.
        len: u64,
        /// Layers, MTP blocks included.
        n_layer: u32,
    },
    /// A layer selects no expert, or more than it has.
    #[error(
        "{}: layer {layer} has {n_expert} experts but {key} selects {used} of them: the metadata are damaged",
        file.display()
    )]
    UsedCount {
        /// The model.
        file: PathBuf,
        /// The layer.
        layer: u32,
        /// `{arch}.expert_used_count`.
        key: String,
        /// Experts that a token goes to.
        used: u32,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// A block beyond the last layer.
    #[error("{}: {tensor} belongs to layer {layer}, but {key} is {n_layer}", file.display())]
    LayerRange {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its layer.
        layer: u32,
        /// `{arch}.block_count`.
        key: String,
        /// Its value.
        n_layer: u32,
    },
    /// An expert tensor counts other experts than its layer has.
    #[error(
        "{}: {tensor} holds {found} experts, but {source_of_count} says {expected}: \
         the model was cut or converted wrongly",
        file.display()
    )]
    ExpertMismatch {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Size of its expert axis.
        found: u64,
        /// The key or the tensor that tells the number of experts.
        source_of_count: String,
        /// That number.
        expected: u32,
    },
    /// An expert tensor has dimensions beyond its expert axis.
    #[error("{}: {tensor} has the shape {shape:?}, whose dimension {axis} should be the last", file.display())]
    Shape {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dimensions, innermost first.
        shape: Vec<u64>,
        /// Index of the expert axis, from 0.
        axis: usize,
    },
    /// One number an expert, in a type that packs several numbers into a block.
    #[error(
        "{}: {tensor} is {ty}, which packs several experts into a block: write this tensor as F32",
        file.display()
    )]
    PackedAxis {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: &'static str,
    },
    /// A layer has some of its expert tensors only.
    #[error("{}: layer {layer} has experts but no {missing}: the file is incomplete", file.display())]
    Incomplete {
        /// The model.
        file: PathBuf,
        /// The layer.
        layer: u32,
        /// The tensor, without `blk.<layer>.`.
        missing: &'static str,
    },
    /// Two tensors of one layer have the same part.
    #[error("{}: {first} and {second} are the same part of a layer", file.display())]
    Twice {
        /// The model.
        file: PathBuf,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// A hash table has another shape or type than llama.cpp reads.
    #[error("{}: {tensor} has {found}, but {wanted} are needed", file.display())]
    HashTable {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What it has.
        found: String,
        /// What llama.cpp reads.
        wanted: String,
    },
    /// The blocks of multi-token prediction cannot be left out.
    #[error(
        "{}: the multi-token-prediction (MTP) block {layer} cannot be left out: {why}",
        file.display()
    )]
    MtpStays {
        /// The model.
        file: PathBuf,
        /// The first of the blocks.
        layer: u32,
        /// What stands against it.
        why: String,
    },
    /// A tensor that may have one entry an expert, by its size or by its name, and is not known.
    #[error(
        "{}: {tensor} with shape {shape:?} is unknown and may belong to the experts ({why}): a newer moeslice may know it",
        file.display()
    )]
    UnknownTensor {
        /// The model.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dimensions, innermost first.
        shape: Vec<u64>,
        /// What is suspicious about it.
        why: String,
    },
}
