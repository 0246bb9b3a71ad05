//! The command line: arguments, what each command does, and how it ends.

mod choose_flags;
mod cut;
#[cfg(feature = "llama")]
mod devices;
mod failure;
mod inspect;
#[cfg(feature = "llama")]
mod llama_flags;
mod output;
mod plan;
#[cfg(feature = "llama")]
mod profile;
mod prune;
#[cfg(feature = "llama")]
mod run;
mod source;
mod usage_file;
mod verify;

use crate::sys::{self, FileError};
use clap::{Parser, Subcommand};
use failure::Failure;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// See which experts of a Mixture-of-Experts model your work wakes up, and cut the others out of its GGUF file.
#[derive(Parser, Debug)]
#[command(name = "moeslice", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed while running, 2 wrong arguments, 3 the input is not usable, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say nothing but errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Show llama.cpp's log
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Profile, choose, cut and verify, in one go
    #[cfg(feature = "llama")]
    Run(Box<run::RunArgs>),
    /// Count which experts the texts wake, and write the usage file
    #[cfg(feature = "llama")]
    Profile(Box<profile::ProfileArgs>),
    /// Show how the routing of a usage file is spread, and what K would cover
    Report(usage_file::ReportArgs),
    /// Join usage files of one model
    Merge(usage_file::MergeArgs),
    /// Show what each K would weigh and cover, and write the plan for one
    Plan(plan::PlanArgs),
    /// Cut experts out of a model, by a usage file or a plan
    Prune(Box<prune::PruneArgs>),
    /// Check that a pruned model is a true cut of its base
    Verify(verify::VerifyArgs),
    /// Show the experts of a model file: tensors, bytes, routing, possible K
    Inspect(inspect::InspectArgs),
    /// List what llama.cpp can run on here
    #[cfg(feature = "llama")]
    Devices {
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
}

/// Runs the program with `arguments`, the first being its name; gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(long_flags(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe behind `--help` is no failure.
            let _ = error.print();
            return if error.use_stderr() { 2 } else { 0 };
        }
    };
    #[cfg(feature = "llama")]
    crate::llama::set_verbose(cli.verbose);
    match dispatch(&cli) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        #[cfg(feature = "llama")]
        Command::Run(args) => run::run(args, cli.quiet),
        #[cfg(feature = "llama")]
        Command::Profile(args) => profile::profile(args, cli.quiet),
        Command::Report(args) => usage_file::report(args),
        Command::Merge(args) => usage_file::merge(args, cli.quiet),
        Command::Plan(args) => plan::plan(args, cli.quiet),
        Command::Prune(args) => prune::prune(args, cli.quiet),
        Command::Verify(args) => verify::verify(args, cli.quiet),
        Command::Inspect(args) => inspect::inspect(args),
        #[cfg(feature = "llama")]
        Command::Devices { json } => devices::devices(*json),
    }
}

/// llama.cpp's short flags of several letters, which the usual rules would read as several flags of one letter.
const SHORT_FLAGS: [(&str, &str); 6] = [
    ("-ub", "--ubatch-size"),
    ("-ngl", "--gpu-layers"),
    ("-dev", "--device"),
    ("-ot", "--override-tensor"),
    ("-cmoe", "--cpu-moe"),
    ("-ncmoe", "--n-cpu-moe"),
];

/// Replaces llama.cpp's short flags (and its long names that differ) by our long ones, up to a `--`.
fn long_flags(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut rest = false;
    let rename = |argument: OsString| {
        rest |= argument == "--";
        let known = SHORT_FLAGS.iter().chain(&[("-fa", "--flash-attn"), ("--n-gpu-layers", "--gpu-layers")]);
        let found = argument
            .to_str()
            .filter(|_| !rest)
            .and_then(|text| known.clone().find(|(short, _)| *short == text));
        found.map_or(argument.clone(), |(_, long)| OsString::from(*long))
    };
    arguments.into_iter().map(rename).collect()
}

/// Refuses a small output (a usage file, a plan) before the long work when it could not be written in the end.
fn check_small_output(path: &Path, force: bool) -> Result<(), Failure> {
    sys::check_target(path, force).map(drop).map_err(output_failure)
}

/// Writes a small output, whole or not at all.
fn write_small_output(path: &Path, bytes: &[u8], force: bool) -> Result<(), Failure> {
    sys::write_whole(path, bytes, force).map_err(output_failure)
}

/// An output that is in the way is a matter of the arguments; everything else failed while running.
fn output_failure(error: FileError) -> Failure {
    match error {
        error @ FileError::Exists { .. } => Failure::Arguments(error.into()),
        error => Failure::running(error),
    }
}

/// From now on Ctrl-C asks the command to end; a second one ends the process at once.
fn catch_interrupts() {
    let _ = ctrlc::set_handler(|| {
        if INTERRUPT.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}
