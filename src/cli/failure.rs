//! How a command fails: the message, and the exit code that goes with it.

use super::console::{PrintError, say};
#[cfg(feature = "llama")]
use crate::llama::{Allocation, LlamaError};
use crate::moe::KeptError;
use crate::plan::{PlanFault, PlanFileError};
#[cfg(feature = "llama")]
use crate::profile::ProfileError;
use crate::progress::Interrupted;
#[cfg(feature = "llama")]
use crate::windows::PassError;
use std::fmt::Display;

/// A failed command. Exit codes: 1 failed while running, 2 wrong arguments, 3 the input is not usable, 130 interrupted.
#[derive(Debug)]
pub enum Failure {
    /// Something failed while running (1).
    Running(anyhow::Error),
    /// The arguments are wrong (2).
    Arguments(anyhow::Error),
    /// The input cannot be used (3).
    Input(anyhow::Error),
    /// Ctrl-C (130), before anything was written.
    Interrupted,
    /// Ctrl-C (130), when a part of what was asked for was already written.
    #[cfg(feature = "llama")]
    InterruptedAfter(std::path::PathBuf),
    /// Ctrl-C (130), when the output was already written and only its check was missing.
    InterruptedCheck,
    /// Whoever read our output has closed it: no failure (0).
    ClosedPipe,
}

impl Failure {
    /// Failed while running.
    pub fn running(error: impl Into<anyhow::Error>) -> Self {
        Failure::Running(error.into())
    }

    /// Wrong arguments.
    pub fn arguments(what: impl Display) -> Self {
        Failure::Arguments(anyhow::anyhow!("{what}"))
    }

    /// The input is not usable.
    pub fn input(error: impl Into<anyhow::Error>) -> Self {
        Failure::Input(error.into())
    }

    /// Says it on stderr, in one line, and gives the exit code.
    pub fn report(&self) -> u8 {
        let (code, error) = match self {
            Failure::Running(error) => (1, error),
            Failure::Arguments(error) => (2, error),
            Failure::Input(error) => (3, error),
            Failure::Interrupted => {
                say("interrupted, nothing was written");
                return 130;
            }
            #[cfg(feature = "llama")]
            Failure::InterruptedAfter(written) => {
                say(&format!("interrupted; {} is written, and nothing else", written.display()));
                return 130;
            }
            Failure::InterruptedCheck => {
                say("interrupted; the output is written, and was not compared with its source");
                return 130;
            }
            Failure::ClosedPipe => return 0,
        };
        // Sources are part of the messages of our own errors, so only the outermost is shown.
        match hint(error) {
            Some(hint) => say(&format!("error: {error}; {hint}")),
            None => say(&format!("error: {error}")),
        }
        code
    }
}

/// Which flag helps: the library knows the fault, the command line knows its flags.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(PlanFileError::Fault { fault: PlanFault::Kept(KeptError::MissingMtp { .. }), .. }) =
        error.downcast_ref()
    {
        return Some("--mtp drop does the latter");
    }
    #[cfg(feature = "llama")]
    if let Some(error) = llama_error(error) {
        return memory_hint(error);
    }
    None
}

/// What llama.cpp said, when it is behind `error`.
#[cfg(feature = "llama")]
fn llama_error(error: &anyhow::Error) -> Option<&LlamaError> {
    let of_a_profile = || error.downcast_ref::<ProfileError>().and_then(ProfileError::llama);
    let of_a_pass = || error.downcast_ref::<PassError>().map(|error| &error.error);
    error.downcast_ref().or_else(of_a_profile).or_else(of_a_pass)
}

/// Which flags need less memory.
#[cfg(feature = "llama")]
fn memory_hint(error: &LlamaError) -> Option<&'static str> {
    let LlamaError::Memory(missing) = error else { return None };
    Some(match missing.allocation {
        Allocation::Model { .. } => {
            "-cmoe or -ncmoe N keep experts in the processor's memory, -ngl N puts fewer layers on the GPU, and a smaller quantisation needs less everywhere"
        }
        Allocation::Context { .. } => {
            "a smaller -c, -b or -ub needs less, as do -ctk q8_0 -ctv q8_0; -nkvo keeps keys and values in the processor's memory"
        }
        Allocation::Batch { .. } => "a smaller -b or -ub needs less",
    })
}

impl From<PrintError> for Failure {
    fn from(error: PrintError) -> Self {
        match error {
            PrintError::Closed => Failure::ClosedPipe,
            PrintError::Failed(error) => Failure::running(anyhow::anyhow!("cannot write to stdout: {error}")),
        }
    }
}

impl From<Interrupted> for Failure {
    fn from(_: Interrupted) -> Self {
        Failure::Interrupted
    }
}

#[cfg(feature = "llama")]
impl From<crate::llama::LlamaError> for Failure {
    fn from(error: crate::llama::LlamaError) -> Self {
        match error {
            crate::llama::LlamaError::Interrupted => Failure::Interrupted,
            error => Failure::running(error),
        }
    }
}
