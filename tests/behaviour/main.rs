//! The program as its users meet it: arguments in; output, files and exit code out.

#[cfg(feature = "llama")]
mod bench;
#[cfg(feature = "llama")]
mod chat;
mod documents;
#[cfg(feature = "llama")]
mod eval;
mod files;
mod inputs;
mod kill;
#[cfg(feature = "llama")]
mod machine;
#[cfg(feature = "llama")]
mod memory;
#[cfg(feature = "llama")]
#[path = "../support/mod.rs"]
mod models;
#[cfg(feature = "llama")]
mod mtp;
#[cfg(feature = "llama")]
mod parts;
#[cfg(feature = "llama")]
mod profile;
mod prune;
mod replay;
mod report;
#[cfg(feature = "llama")]
mod rpc;
#[cfg(feature = "llama")]
mod run;
#[cfg(feature = "llama")]
mod stopped;
#[cfg(feature = "llama")]
mod supervise;
mod support;
#[cfg(feature = "llama")]
mod texts;
#[cfg(feature = "llama")]
mod trace;
mod verify;
