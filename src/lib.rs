//! See which experts of a Mixture-of-Experts model a text activates, and cut the others out of its GGUF file.
//!
//! The usage of a model comes from the program (`moeslice profile`), from `profile::profile` with the feature `llama`,
//! or from the counts of `llama-imatrix`. From there on nothing runs the model, so that the default of a library is
//! `default-features = false`: no llama.cpp is built, and nothing of the command line comes along.
//!
//! ```no_run
//! use moeslice::moe::MoeModel;
//! use moeslice::plan::{KeepTarget, Pins, PlanSource, Planner};
//! use moeslice::progress::{Interrupt, Silent};
//! use moeslice::score::{Blend, Score};
//! use moeslice::slice::{self, Cut, Options};
//! use moeslice::{gguf, usage};
//! use std::path::Path;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The model, which experts it holds, and how often each was selected.
//! let model = MoeModel::open(Path::new("model.gguf"))?;
//! let usage = usage::open(Path::new("usage.json"), &model)?.usage;
//!
//! // The experts that stay: so many that every layer keeps 98 % of its routing.
//! let (blend, pins) = (Blend::Tokens, Pins::default());
//! let planner = Planner::new(&usage, model.chosen(), Score::Frequency, &blend, &pins)?;
//! let keep: KeepTarget = "coverage:0.98".parse()?;
//! let provenance = model.provenance("frequency", &keep.to_string(), vec![]);
//! let size = |k| Ok(model.cut_bytes(k, &provenance, Default::default())?);
//! let plan = planner.plan(&keep, &size, PlanSource::new(model.path(), &model.identity))?;
//!
//! // The pruned model, written whole or not at all, and compared with its source byte by byte.
//! let cut = Cut { model: &model.file, experts: model.written(), keep: &plan.keep, provenance };
//! let output = Path::new("pruned.gguf");
//! let written = slice::prune(&cut, output, &Options::default(), &mut Silent)?;
//! let pruned = gguf::Model::open(output)?;
//! let verified = slice::verify(&model.file, &pruned, Some(&plan.keep), &mut Silent, Interrupt::NEVER)?;
//! println!("{} experts a layer, {} bytes, {} compared", plan.k, written.bytes(), verified.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! Each uses those above it alone.
//!
//! | | |
//! |---|---|
//! | [`sys`] | files that are there whole or not at all, copies inside the kernel, Ctrl-C |
//! | [`units`] | sizes as people write them |
//! | [`progress`] | how far long work is, and a request to end it |
//! | [`json`] | documents that name their schema |
//! | [`gguf`] | the file format, checked by llama.cpp's own rules |
//! | [`arch`] | the architectures that route tokens to experts, one row each |
//! | [`moe`] | the experts of a model, what it can keep, the shape of a cut |
//! | [`usage`] | how often each expert was selected: the usage file |
//! | [`trace`] | where each token went: the file of recorded routing |
//! | [`score`] | how much each expert matters |
//! | [`plan`] | which experts stay: the plan file |
//! | [`slice`](mod@slice) | the cut, and its comparison with the source |
//! | [`cache`] | caches of experts, one policy each |
//! | [`replay`] | recorded routing through those caches |
//! | `llama` | llama.cpp made safe; feature `llama` |
//! | `preflight` | whether models and contexts fit into memory; feature `llama` |
//! | [`corpus`] | texts and chats, read and rendered |
//! | `windows` | texts as a model gets them, batch by batch; feature `llama` |
//! | [`profile`] | from texts and a model to a usage |
//! | [`evaluate`] | what a cut costs |
//! | `bench` | how fast models are, side by side; feature `llama` |
//! | [`report`] | what a usage and a plan say, as data and as tables |
//! | [`page`] | the same, measurements and replays as pages |
//! | `supervise` | a child process that runs a model, and may hang; feature `llama` |
//! | `cli` | the program; feature `cli` |
//!
//! # Features
//!
//! `cli` is the program, `llama` runs models through llama.cpp, which is then built, and `vulkan` adds its Vulkan backend.
//! All three are on by default.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod arch;
#[cfg(feature = "llama")]
pub mod bench;
pub mod cache;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod console;
pub mod corpus;
mod digest;
pub mod evaluate;
#[cfg(feature = "cli")]
mod flags;
#[doc(hidden)]
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gguf;
pub mod json;
#[cfg(feature = "llama")]
pub mod llama;
pub mod moe;
pub mod page;
pub mod plan;
#[cfg(feature = "llama")]
pub mod preflight;
pub mod profile;
pub mod progress;
#[doc(hidden)]
pub mod random;
pub mod replay;
pub mod report;
#[cfg(test)]
mod schemas;
pub mod score;
pub mod slice;
#[cfg(feature = "llama")]
pub mod supervise;
pub mod sys;
pub mod trace;
pub mod units;
pub mod usage;
#[cfg(feature = "llama")]
pub mod windows;
