//! How a command fails: the message, and the exit code that goes with it.

use super::{PrintError, say};
use crate::corpus::{ChatError, CorpusError};
#[cfg(feature = "llama")]
use crate::llama::{Allocation, LlamaError};
use crate::moe::KeptError;
use crate::plan::{PlanError, PlanFault, PlanFileError};
#[cfg(feature = "llama")]
use crate::preflight::{DoesNotFit, Figure};
#[cfg(feature = "llama")]
use crate::profile::ProfileError;
use crate::progress::Interrupted;
use crate::replay::ReplayError;
use crate::score::ScoreError;
use crate::slice::SliceError;
use crate::sys::FileError;
use crate::usage::UsageError;
#[cfg(feature = "llama")]
use crate::windows::PassError;
use std::fmt::Display;
#[cfg(feature = "llama")]
use std::path::PathBuf;

/// A failed command. Exit codes: 1 failed while running, 2 wrong arguments, 3 the input is not usable, 130 interrupted;
/// 4, for a device that hangs, comes from the parent that watches: `supervised`.
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
    /// Ctrl-C (130), when the usage file of this path was already written, and the model was not.
    #[cfg(feature = "llama")]
    InterruptedCut(PathBuf),
    /// Ctrl-C (130), when a part of the work is done and kept.
    #[cfg(feature = "llama")]
    Stopped(String),
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

    /// The same failure, of a command that has written the usage file `usage` before.
    #[cfg(feature = "llama")]
    pub fn after_usage(self, usage: PathBuf) -> Self {
        match self {
            Failure::Interrupted => Failure::InterruptedCut(usage),
            failure => failure,
        }
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
            Failure::InterruptedCut(usage) => {
                let usage = usage.display();
                say(&format!(
                    "interrupted; {usage} is written, the model is not: prune --usage goes on from there"
                ));
                return 130;
            }
            #[cfg(feature = "llama")]
            Failure::Stopped(what) => {
                say(what);
                return 130;
            }
            Failure::ClosedPipe => return 0,
        };
        say(&format!("error: {}", with_hint(error)));
        code
    }
}

/// The message, and which flag helps. Sources are part of the messages of our own errors, so only the outermost is
/// shown.
pub fn with_hint(error: &anyhow::Error) -> String {
    #[cfg(feature = "llama")]
    if let Some(does_not_fit) = error.downcast_ref::<DoesNotFit>() {
        return format!("{error}; {}", fit_hint(does_not_fit));
    }
    match hint(error) {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// Which flag helps: the library knows the fault, the command line knows its flags.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<PlanError>() {
        return plan_hint(error);
    }
    if let Some(PlanFileError::Fault { fault: PlanFault::Kept(KeptError::MissingMtp { .. }), .. }) =
        error.downcast_ref()
    {
        return Some("--mtp drop does the latter");
    }
    #[cfg(feature = "llama")]
    if let Some(error) = llama_error(error) {
        return memory_hint(error);
    }
    if let Some(CorpusError::Chat(error)) = error.downcast_ref() {
        return match error {
            ChatError::NoTemplate { .. } => Some("--chat-template gives one"),
            ChatError::Template { .. } => Some("--chat-template gives another one"),
            ChatError::Bad { total, bad, .. } if bad.len() < *total => {
                Some("--skip-bad goes on without them")
            }
            _ => None,
        };
    }
    if let Some(UsageError::Gguf { .. }) = error.downcast_ref() {
        return Some("`plan` and `prune --usage` take it so");
    }
    if let Some(error) = error.downcast_ref::<ReplayError>() {
        return replay_hint(error);
    }
    let file = match error.downcast_ref() {
        Some(SliceError::File(file)) => Some(file),
        _ => error.downcast_ref(),
    };
    match file {
        Some(FileError::Exists { .. }) => return Some("--force replaces it"),
        Some(FileError::TooLarge { .. }) => return Some("--shards 2GiB writes several smaller files"),
        _ => {}
    }
    None
}

fn replay_hint(error: &ReplayError) -> Option<&'static str> {
    match error {
        ReplayError::NoBytes => Some("-m MODEL takes them from the model"),
        ReplayError::TooShort { .. } => {
            Some("--warmup shortens it, --carry lets the sessions share the cache")
        }
        ReplayError::OptimumAware { .. } => Some("leave it to --lambda 0"),
        _ => None,
    }
}

fn plan_hint(error: &PlanError) -> Option<&'static str> {
    match error {
        PlanError::Mtp { runs: true, .. } => {
            Some("--mtp profile counts it, --mtp drop leaves it out, prune --plan takes a plan")
        }
        PlanError::Mtp { runs: false, .. } => Some("--mtp drop leaves it out, prune --plan takes a plan"),
        PlanError::PinLayer { .. }
        | PlanError::PinId { .. }
        | PlanError::PinCount { .. }
        | PlanError::PinGroup { .. } => Some("--always-keep names the pinned experts"),
        PlanError::Score(ScoreError::NoWeights { .. }) => {
            Some("profile with --score-data weights, or take --score frequency")
        }
        PlanError::Score(ScoreError::NoActivations { .. }) => {
            Some("profile with --score-data full, or take --score weight")
        }
        _ => None,
    }
}

/// What llama.cpp said, when it is behind `error`.
#[cfg(feature = "llama")]
fn llama_error(error: &anyhow::Error) -> Option<&LlamaError> {
    let of_a_profile = || error.downcast_ref::<ProfileError>().and_then(ProfileError::llama);
    let of_a_pass = || error.downcast_ref::<PassError>().map(|error| &error.error);
    error.downcast_ref().or_else(of_a_profile).or_else(of_a_pass)
}

/// Which flags need less of the memory that is lacking: what takes most comes first, and what takes little is left out.
#[cfg(feature = "llama")]
fn fit_hint(error: &DoesNotFit) -> String {
    let mut help: Vec<&str> = Vec::new();
    for lack in &error.lacks {
        let of_gpu = lack.share.device.is_some();
        for figure in lack.largest_first() {
            help.push(match (figure, of_gpu) {
                (Figure::Weights, true) => {
                    "-cmoe or -ncmoe N keep experts in the processor's memory, -ngl N puts fewer layers on the GPU"
                }
                (Figure::Weights, false) => {
                    "-lm mmap leaves weights in the file until they are needed, and a smaller quantisation has fewer bytes"
                }
                (Figure::KeysValues, true) => {
                    "a smaller -c has fewer keys and values, -ctk q8_0 -ctv q8_0 smaller ones, and -nkvo keeps them in the processor's memory"
                }
                (Figure::KeysValues, false) => "a smaller -c or -b has fewer keys and values, -ctk q8_0 -ctv q8_0 smaller ones",
                (Figure::Compute, _) => "a smaller -ub, or -c, needs less to compute in",
                (Figure::Output, _) => "a smaller -b leaves fewer outputs at once",
            });
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    help.retain(|text| seen.insert(*text));
    format!("{}; --no-memory-check goes on all the same", help.join("; "))
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
impl From<crate::profile::ProfileError> for Failure {
    fn from(error: crate::profile::ProfileError) -> Self {
        use crate::profile::ProfileError::{NoPass, NoTokens, Text, TooManyParts};
        match error {
            error if error.is_interrupt() => Failure::Interrupted,
            error @ (NoTokens { .. } | TooManyParts { .. } | NoPass(_) | Text(_)) => Failure::input(error),
            error => Failure::running(error),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "llama")]
    fn interrupt_after_the_usage_was_written_does_not_say_that_nothing_was() {
        let usage = || PathBuf::from("u.json");
        assert!(
            matches!(Failure::Interrupted.after_usage(usage()), Failure::InterruptedCut(path) if path == usage())
        );
    }

    #[test]
    fn a_fault_that_a_flag_helps_against_is_told_with_the_flag() {
        let exists = || FileError::Exists { path: "o.gguf".into() };
        assert!(with_hint(&exists().into()).ends_with("; --force replaces it"));
        // What a command adds to the message does not hide the fault.
        let within = anyhow::Error::new(exists()).context("m.gguf: o.gguf exists");
        assert_eq!(with_hint(&within), "m.gguf: o.gguf exists; --force replaces it");
        for (error, flag) in [
            (PlanError::Mtp { layer: 3, runs: true }, "--mtp profile"),
            (PlanError::Mtp { layer: 3, runs: false }, "--mtp drop"),
            (PlanError::PinLayer { layer: 3 }, "--always-keep"),
            (PlanError::Score(ScoreError::NoWeights { layer: 3, score: Default::default() }), "--score-data"),
        ] {
            assert!(with_hint(&error.into()).contains(flag));
        }
        assert_eq!(
            with_hint(&PlanError::NeverReached { layer: 3 }.into()),
            PlanError::NeverReached { layer: 3 }.to_string()
        );
    }
}
