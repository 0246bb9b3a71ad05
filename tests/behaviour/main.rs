//! The program as its users meet it: arguments in; output, files and exit code out.

mod files;
mod inputs;
mod kill;
#[cfg(feature = "llama")]
mod profile;
mod prune;
#[cfg(feature = "llama")]
mod run;
mod support;
mod verify;
