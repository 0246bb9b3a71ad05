//! llama.cpp made safe: devices, models, contexts, and observers of the running graph.
//!
//! All `unsafe` of the program that concerns llama.cpp is in this folder. No C++ exception crosses into Rust (the shim
//! turns them into status and text) and no panic crosses into C++ (callbacks catch them and the call that was running
//! returns them as an error).

mod backend;
mod batch;
mod chat;
mod context;
mod error;
#[cfg(feature = "faults")]
pub mod faulty;
#[allow(
    non_upper_case_globals,
    non_camel_case_types,
    non_snake_case,
    dead_code,
    missing_docs,
    unnameable_types,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod ffi {
    //! The raw bindings, as bindgen writes them.
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
mod fit;
mod held;
mod log;
mod memory;
mod model;
mod node;
mod numa;
mod observer;
mod placement;
mod rpc;
mod settings;
mod synthetic;
#[cfg(test)]
mod type_table;
mod vocab;

pub use backend::{Backend, BufferType, Device, DeviceKind};
pub use batch::Batch;
pub use chat::{ChatTemplate, PromptPart};
pub use context::{Context, ContextOptions, ModelPart, PassOutputs, max_sequences};
pub use error::{Allocation, LlamaError, LogTail, MissingMemory, ObserveError};
pub use fit::Fit;
pub use held::HeldMemory;
pub use log::{LogLevel, set_log_sink, set_verbose};
pub use model::Model;
pub use node::{Node, Site, SourceNode};
pub use numa::Numa;
pub use observer::{Observer, Observers, activity};
pub use placement::{KvOverride, KvValue, LoadMode, Placement, SplitMode};
pub use settings::{CacheType, ContextSettings, FlashAttention};
pub use synthetic::{BlankTensor, Fill};
pub use vocab::{SpecialToken, Token, Tokenizer, Vocab};

/// Size of the buffers that take the text of an exception.
const ERROR_BYTES: usize = 1024;

/// The text that the shim left in `buffer`.
fn message(buffer: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
