//! Texts as a model gets them: tokens, windows, and the runner that takes batches of windows through a context.
//!
//! Everything that runs a model over texts shares this room: the profile pass, and whatever else looks at the running
//! graph or at what it leaves behind. [`Windows`] cuts texts, [`PassConfig`] says how an architecture is run, and
//! [`Runner`] runs it while a [`WindowObserver`] watches.

mod config;
mod cut;
mod pieces;
mod rows;
mod runner;
mod tokenize;

pub use config::{KvUnified, NoPass, PassConfig, PassNeeds, WindowOptions};
pub use cut::{CorpusPart, Cut, Window, Windows};
pub(crate) use rows::{fill_rows, for_rows};
pub use runner::{Computed, PassError, Piece, Runner, WindowObserver, count_batches, groups};
pub use tokenize::TokenizeError;
