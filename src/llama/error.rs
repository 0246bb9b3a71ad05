//! What can go wrong between us and llama.cpp.

use crate::units::ByteCount;
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// The last lines that llama.cpp logged as warnings or errors during a call that failed.
#[derive(Clone, Debug, Default)]
pub struct LogTail(pub(super) Vec<String>);

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("llama.cpp gave no reason; run again with -v for its log"),
            lines => write!(f, "llama.cpp said: {}", lines.join(" | ")),
        }
    }
}

/// What memory was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The weights of a model.
    Model {
        /// The model file.
        path: PathBuf,
    },
    /// A context: keys and values, and room to compute in.
    Context {
        /// Tokens asked for, over all sequences.
        n_ctx: u32,
    },
    /// A batch: its outputs, and room to compute in.
    Batch {
        /// Tokens of the batch.
        n_tokens: usize,
    },
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allocation::Model { path } => write!(f, "the model {}", path.display()),
            Allocation::Context { n_ctx } => write!(f, "a context of {n_ctx} tokens"),
            Allocation::Batch { n_tokens } => write!(f, "a batch of {n_tokens} tokens"),
        }
    }
}

/// Memory that a device did not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMemory {
    /// What it was for.
    pub allocation: Allocation,
    /// The device, or the kind of memory, as llama.cpp calls it.
    pub device: String,
    /// Bytes asked for, when llama.cpp said so.
    pub asked: Option<u64>,
    /// Bytes free, as the device says now.
    pub free: Option<u64>,
}

impl fmt::Display for MissingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingMemory { allocation, device, asked, free } = self;
        write!(f, "there is not enough memory for {allocation}: ")?;
        match asked {
            Some(bytes) => write!(f, "{} were asked of {device}", ByteCount(*bytes))?,
            None => write!(f, "{device} gave none")?,
        }
        match free {
            Some(bytes) => write!(f, ", which has {} free", ByteCount(*bytes)),
            None => Ok(()),
        }
    }
}

/// A failure of llama.cpp, or of an observer that rode on it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LlamaError {
    /// A path or text that C cannot take.
    #[error("{what} holds a NUL byte, which llama.cpp cannot take")]
    Nul {
        /// What was handed over.
        what: String,
    },
    /// The model did not load.
    #[error("{path}: llama.cpp cannot load the model: {tail}")]
    Load {
        /// The model file.
        path: PathBuf,
        /// Why.
        tail: LogTail,
    },
    /// Loading was interrupted by the user.
    #[error("interrupted")]
    Interrupted,
    /// A model could not be made from metadata.
    #[error("llama.cpp cannot make the model: {tail}")]
    Synthesize {
        /// Why.
        tail: LogTail,
    },
    /// A model could not be written.
    #[error("{path}: llama.cpp cannot write the model: {tail}")]
    Save {
        /// The target.
        path: PathBuf,
        /// Why.
        tail: LogTail,
    },
    /// No context for the model.
    #[error("llama.cpp cannot make a context of {n_ctx} tokens: {tail}")]
    Context {
        /// Tokens asked for, over all sequences.
        n_ctx: u32,
        /// Why.
        tail: LogTail,
    },
    /// A batch was not computed.
    #[error("llama.cpp cannot compute a batch of {n_tokens} tokens (status {status}): {tail}")]
    Decode {
        /// Tokens of the batch.
        n_tokens: usize,
        /// What `llama_decode` returned.
        status: i32,
        /// Why.
        tail: LogTail,
    },
    /// llama.cpp threw an exception, as it does when a device is lost or out of memory.
    #[error("llama.cpp failed {}: {message}", while_computing(*n_tokens))]
    Threw {
        /// Tokens of the batch; 0 between batches.
        n_tokens: usize,
        /// The text of the exception.
        message: String,
    },
    /// The pass left no state of a token, or another number of numbers than the states have.
    #[error("there is no state of token {index} of the batch for the block of multi-token prediction")]
    NoState {
        /// Place of the token in the batch.
        index: usize,
    },
    /// A text cannot be tokenized.
    #[error("the text ({bytes} bytes) cannot be tokenized: {message}")]
    Tokenize {
        /// Length of the text.
        bytes: usize,
        /// Why.
        message: String,
    },
    /// A batch that does not fit the context.
    #[error("a batch of {n_tokens} tokens does not fit into a context made for {capacity}")]
    BatchTooLarge {
        /// Tokens of the batch.
        n_tokens: usize,
        /// The context's batch size.
        capacity: usize,
    },
    /// A text that is too long for llama.cpp.
    #[error("{text:?} is too long: llama.cpp takes {limit} bytes there")]
    TooLong {
        /// The text.
        text: String,
        /// Bytes that it takes.
        limit: usize,
    },
    /// More shares of a model than devices that llama.cpp can have.
    #[error("{given} shares of the model are more than the {limit} devices that llama.cpp can have")]
    TooManyShares {
        /// Shares.
        given: usize,
        /// Devices.
        limit: usize,
    },
    /// A device name that llama.cpp does not know.
    #[error("there is no device {name:?} here; there are: {}", known.join(", "))]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The devices of an RPC server cannot be used.
    #[error("{server}: {what}")]
    Rpc {
        /// Its host and port.
        server: String,
        /// Why.
        what: String,
    },
    /// A device has too little memory.
    #[error("{0}")]
    Memory(MissingMemory),
    /// An observer failed.
    #[error(transparent)]
    Observer(#[from] ObserveError),
    /// An observer failed, and then llama.cpp did.
    #[error("{error}; then: {then}")]
    Both {
        /// What the observer said.
        error: ObserveError,
        /// What llama.cpp said.
        then: Box<LlamaError>,
    },
}

/// A failure inside an observer; it ends the pass.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The data of a node could not be read or written: the device may be lost.
    #[error("node {node} of the graph cannot be accessed: {message}")]
    Device {
        /// The node's name.
        node: String,
        /// The text of the exception.
        message: String,
    },
    /// A node is not laid out as the observer expects.
    #[error("node {node} of the graph is not as expected: {what}")]
    Layout {
        /// The node's name.
        node: String,
        /// What is different.
        what: String,
    },
    /// The driver handed back an id that no expert has.
    #[error(
        "layer {layer}, token {token}: expert id {id} is out of range (the layer has {n_expert} experts); the device or its driver returned wrong data"
    )]
    ExpertOutOfRange {
        /// The layer.
        layer: u32,
        /// Position of the token in the ubatch.
        token: usize,
        /// What was read.
        id: i32,
        /// Experts of the layer.
        n_expert: u32,
    },
    /// One token selected the same expert twice.
    #[error(
        "layer {layer}, token {token}: expert {id} is selected twice; the routing was misread or the device returned wrong data"
    )]
    ExpertTwice {
        /// The layer.
        layer: u32,
        /// Position of the token in the ubatch.
        token: usize,
        /// The expert.
        id: u32,
    },
    /// A gate weight that is not a number.
    #[error("layer {layer}, token {token}: the gate weight of expert {expert} is {value}")]
    WeightNotFinite {
        /// The layer.
        layer: u32,
        /// Position of the token in the ubatch.
        token: usize,
        /// The expert.
        expert: u32,
        /// What was read.
        value: f32,
    },
    /// The output of an expert is not a number.
    #[error("layer {layer}, token {token}: the output of expert {expert} is not a finite number")]
    OutputNotFinite {
        /// The layer.
        layer: u32,
        /// Position of the token in the ubatch.
        token: usize,
        /// The expert.
        expert: u32,
    },
    /// A layer routed more tokens than there are.
    #[error(
        "layer {layer} routed more tokens than the {n_tokens} of the batch; its architecture may route in a way that is not known here"
    )]
    Surplus {
        /// The layer.
        layer: u32,
        /// Tokens of the batch.
        n_tokens: usize,
    },
    /// The observer panicked; the panic did not cross into C++.
    #[error("an observer panicked: {0}")]
    Panicked(String),
}

fn while_computing(n_tokens: usize) -> String {
    match n_tokens {
        0 => "between two batches".to_owned(),
        n_tokens => format!("while computing a batch of {n_tokens} tokens"),
    }
}
