//! How a command fails: the message, and the exit code that goes with it.

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
                eprintln!("moeslice: interrupted, nothing was written");
                return 130;
            }
            Failure::InterruptedCheck => {
                eprintln!(
                    "moeslice: interrupted; the output is written, and was not compared with its source"
                );
                return 130;
            }
            Failure::ClosedPipe => return 0,
        };
        // Sources are part of the messages of our own errors, so only the outermost is shown.
        eprintln!("moeslice: error: {}", error.to_string().trim().replace('\n', " "));
        code
    }
}
