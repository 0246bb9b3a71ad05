//! How a command fails: the message, and the exit code that goes with it.

use super::console::{PrintError, say};
use crate::moe::KeptError;
use crate::plan::{PlanFault, PlanFileError};
use crate::progress::Interrupted;
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
    /// Ctrl-C (130), when a part of the work is done and kept.
    Stopped(String),
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
            Failure::Stopped(what) => {
                say(what);
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
    None
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
