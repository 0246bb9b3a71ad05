//! The command line: arguments, what each command does, and how it ends.

mod commands;
mod console;
mod failure;
mod flags;
mod output_files;
#[cfg(feature = "llama")]
mod supervised;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "llama")]
use commands::{bench, devices, profile, run, trace};
use commands::{completions, inspect, man, merge, plan, prune, replay, report, verify};
use console::Console;
use failure::Failure;
use std::ffi::OsString;

/// See which experts of a Mixture-of-Experts model your work activates, and cut the others out of its GGUF file.
#[derive(Parser, Debug)]
#[command(name = "moeslice", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed while running, 2 wrong arguments, 3 the input is not usable, \
                  4 the device stopped answering, 130 interrupted."
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
    /// Count which experts the texts activate, and write the usage file
    #[cfg(feature = "llama")]
    Profile(Box<profile::ProfileArgs>),
    /// Show how the routing of a usage file is spread, and what K would cover
    Report(report::ReportArgs),
    /// Join usage files of one model
    Merge(merge::MergeArgs),
    /// Show what each K would take and cover, and write the plan for one
    Plan(plan::PlanArgs),
    /// Cut experts out of a model, by a usage file or a plan
    Prune(Box<prune::PruneArgs>),
    /// Check that a pruned model is a true cut of its base
    Verify(verify::VerifyArgs),
    /// Record which experts each token goes to, and which came close, for `replay`
    #[cfg(feature = "llama")]
    Trace(Box<trace::TraceArgs>),
    /// Replay recorded routing through caches of experts: hits, misses, bytes
    Replay(Box<replay::ReplayArgs>),
    /// Show the experts of a model file: tensors, bytes, routing, possible K
    Inspect(inspect::InspectArgs),
    /// Measure how fast models process prompts and generate, side by side
    #[cfg(feature = "llama")]
    Bench(Box<bench::BenchArgs>),
    /// List what llama.cpp can run on here
    #[cfg(feature = "llama")]
    Devices {
        /// Machine-readable output
        #[arg(long)]
        json: bool,
    },
    /// Print a script that lets a shell complete commands and flags
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man,
}

/// Runs the program with `arguments`, the first being its name; gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(long_flags(arguments.iter().cloned())) {
        Ok(cli) => cli,
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = help.print();
            return 2;
        }
        Err(error) if error.use_stderr() => {
            console::say(&one_line(&error.render().to_string(), &arguments));
            return 2;
        }
        Err(help) => {
            // A closed pipe behind `--help` is no failure.
            let _ = help.print();
            return 0;
        }
    };
    #[cfg(feature = "llama")]
    {
        crate::llama::set_verbose(cli.verbose);
        match supervised::role(&cli) {
            supervised::Role::Alone => {}
            supervised::Role::Child(parent) => supervised::begin(parent),
            supervised::Role::Parent(limit) => {
                return supervised::watch(&arguments, limit, Console { quiet: cli.quiet });
            }
        }
    }
    match dispatch(&cli) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let console = Console { quiet: cli.quiet };
    match &cli.command {
        #[cfg(feature = "llama")]
        Command::Run(args) => run::run(args, console),
        #[cfg(feature = "llama")]
        Command::Profile(args) => profile::profile(args, console),
        Command::Report(args) => report::report(args),
        Command::Merge(args) => merge::merge(args, console),
        Command::Plan(args) => plan::plan(args, console),
        Command::Prune(args) => prune::prune(args, console),
        Command::Verify(args) => verify::verify(args, console),
        #[cfg(feature = "llama")]
        Command::Trace(args) => trace::trace(args, console),
        Command::Replay(args) => replay::replay(args, console),
        Command::Inspect(args) => inspect::inspect(args),
        #[cfg(feature = "llama")]
        Command::Bench(args) => bench::bench(args, console),
        #[cfg(feature = "llama")]
        Command::Devices { json } => devices::devices(*json),
        Command::Completions(args) => completions::completions(args, Cli::command()),
        Command::Man => man::man(Cli::command()),
    }
}

/// What clap has to say about wrong `arguments`, without the usage that it adds.
fn one_line(message: &str, arguments: &[OsString]) -> String {
    let first: Vec<&str> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let more = message.lines().map(str::trim).find(|line| line.starts_with("tip: "));
    let tip = more.map(|tip| format!(" ({tip})")).unwrap_or_default();
    let program = Cli::command();
    let command = arguments.iter().skip(1).find(|argument| !argument.to_string_lossy().starts_with('-'));
    let command = command.and_then(|name| program.find_subcommand(name));
    let command = command.map(|command| format!("{} ", command.get_name())).unwrap_or_default();
    format!("{}{tip}; see moeslice {command}--help", first.join(" "))
}

/// llama.cpp's short flags of several letters, which the usual rules would read as several flags of one letter, and
/// its long names that differ from ours.
const SHORT_FLAGS: [(&str, &str); 8] = [
    ("-fa", "--flash-attn"),
    ("--n-gpu-layers", "--gpu-layers"),
    ("-ub", "--ubatch-size"),
    ("-ngl", "--gpu-layers"),
    ("-dev", "--device"),
    ("-ot", "--override-tensor"),
    ("-cmoe", "--cpu-moe"),
    ("-ncmoe", "--n-cpu-moe"),
];

/// Replaces the flags in [`SHORT_FLAGS`] by our long ones, up to a `--`.
fn long_flags(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut rest = false;
    let rename = |argument: OsString| {
        rest |= argument == "--";
        let Some(text) = argument.to_str().filter(|_| !rest) else { return argument };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match SHORT_FLAGS.iter().find(|(short, _)| *short == name) {
            Some((_, long)) => value.map_or((*long).into(), |value| format!("{long}={value}").into()),
            None => argument,
        }
    };
    arguments.into_iter().map(rename).collect()
}
