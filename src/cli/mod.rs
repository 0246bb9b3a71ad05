//! The program: its commands, what each does, and how it ends.

mod commands;
#[cfg(feature = "llama")]
mod supervised;

use crate::console::failure::Failure;
use crate::console::{self, Console};
use crate::flags;
use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
#[cfg(feature = "llama")]
use commands::{bench, devices, eval, profile, refine, run, trace};
use commands::{completions, imatrix, inspect, man, merge, plan, prune, replay, report, verify};
use std::ffi::OsString;
#[cfg(feature = "llama")]
use std::io::Write;
use std::process::ExitCode;

/// See which experts of a Mixture-of-Experts model your work activates, and cut the others out of its GGUF file.
#[derive(Parser, Debug)]
#[command(name = "moeslice", version, about, max_term_width = 100, args_override_self = true)]
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
    /// Colours in what is printed
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
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
    /// Cut an importance matrix as its model was cut, to requantise the pruned model with it
    Imatrix(imatrix::ImatrixArgs),
    /// Check that a pruned model is a true cut of its base
    Verify(verify::VerifyArgs),
    /// Record which experts each token goes to, and which came close, for `replay`
    #[cfg(feature = "llama")]
    Trace(Box<trace::TraceArgs>),
    /// Replay recorded routing through caches of experts: hits, misses, bytes
    Replay(Box<replay::ReplayArgs>),
    /// Show the experts of a model file: tensors, bytes, routing, possible K
    Inspect(inspect::InspectArgs),
    /// Measure what a model is worth on texts: alone, beside its base, or as if it had been cut
    #[cfg(feature = "llama")]
    Eval(Box<eval::EvalArgs>),
    /// Make a plan better by trial: exchange experts next to the cut, and keep what helps
    #[cfg(feature = "llama")]
    Refine(Box<refine::RefineArgs>),
    /// Measure how fast models process prompts and generate, side by side
    #[cfg(feature = "llama")]
    Bench(Box<bench::BenchArgs>),
    /// List what llama.cpp can run on here, or what a model would take of it
    #[cfg(feature = "llama")]
    Devices(Box<devices::DevicesArgs>),
    /// Print a script that lets a shell complete commands and flags
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man,
}

/// Runs the program with `arguments`, the first being its name, and ends it. To be called before there are threads.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    #[cfg(feature = "llama")]
    flags::names::settle_variables();
    let code = main(arguments);
    #[cfg(feature = "llama")]
    if crate::llama::Backend::has_gpu_driver() {
        // At the end of the process, ggml lets go of a driver that is gone by then.
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().flush();
        crate::sys::exit_at_once(code);
    }
    ExitCode::from(code)
}

/// Runs the program with `arguments`, the first being its name; gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let given: Vec<OsString> = arguments.into_iter().collect();
    let arguments = match translated(given.iter().cloned()) {
        Ok(arguments) => arguments,
        Err(what) => {
            console::say(&format!("error: {what}"));
            return 2;
        }
    };
    let program = Cli::command().color(colour_of(&given));
    let parsed = program.try_get_matches_from(arguments).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = help.print();
            return 2;
        }
        Err(error) if error.use_stderr() => {
            console::say(&refusal(&error, &given));
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
            supervised::Role::Parent(limit, suspects) => {
                return supervised::watch(&given, limit, &suspects, console(&cli));
            }
        }
    }
    match dispatch(&cli) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// What `--color` says, before the arguments are understood: the help has colours, too.
fn colour_of(arguments: &[OsString]) -> ColorChoice {
    let words = || arguments.iter().map(|word| word.to_string_lossy());
    let beside = words().skip_while(|word| word != "--color").nth(1);
    let joined = words().find_map(|word| word.strip_prefix("--color=").map(str::to_owned));
    let named = joined.or(beside.map(|word| word.into_owned()));
    named.and_then(|name| ColorChoice::from_str(&name, false).ok()).unwrap_or(ColorChoice::Auto)
}

/// The arguments with our names in place of llama.cpp's, and files in place of names of downloads.
fn translated(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let arguments = flags::names::translate(arguments)?;
    #[cfg(feature = "llama")]
    let arguments = {
        let program = Cli::command();
        let takes_model = subcommand(&program, &arguments).is_some_and(|command| {
            command.get_arguments().any(|argument| argument.get_env() == Some("LLAMA_ARG_MODEL".as_ref()))
        });
        flags::hf::find_models(arguments, takes_model)?
    };
    Ok(arguments)
}

/// The command that `arguments` name.
fn subcommand<'p>(program: &'p clap::Command, arguments: &[OsString]) -> Option<&'p clap::Command> {
    let name = arguments.iter().skip(1).find(|argument| !argument.to_string_lossy().starts_with('-'));
    name.and_then(|name| program.find_subcommand(name))
}

fn console(cli: &Cli) -> Console {
    Console {
        quiet: cli.quiet,
        color: cli.color,
        #[cfg(feature = "llama")]
        verbose: cli.verbose,
    }
}

fn dispatch(cli: &Cli) -> Result<(), Failure> {
    let console = console(cli);
    match &cli.command {
        #[cfg(feature = "llama")]
        Command::Run(args) => run::run(args, console),
        #[cfg(feature = "llama")]
        Command::Profile(args) => profile::profile(args, console),
        Command::Report(args) => report::report(args, console),
        Command::Merge(args) => merge::merge(args, console),
        Command::Plan(args) => plan::plan(args, console),
        Command::Prune(args) => prune::prune(args, console),
        Command::Imatrix(args) => imatrix::imatrix(args, console),
        Command::Verify(args) => verify::verify(args, console),
        #[cfg(feature = "llama")]
        Command::Trace(args) => trace::trace(args, console),
        Command::Replay(args) => replay::replay(args, console),
        Command::Inspect(args) => inspect::inspect(args, console),
        #[cfg(feature = "llama")]
        Command::Eval(args) => eval::eval(args, console),
        #[cfg(feature = "llama")]
        Command::Refine(args) => refine::refine(args, console),
        #[cfg(feature = "llama")]
        Command::Bench(args) => bench::bench(args, console),
        #[cfg(feature = "llama")]
        Command::Devices(args) => devices::devices(args, console),
        Command::Completions(args) => completions::completions(args, Cli::command()),
        Command::Man => man::man(Cli::command()),
    }
}

/// Why the arguments are wrong. A flag of llama.cpp that moeslice has in none of its commands is named as such.
fn refusal(error: &clap::Error, arguments: &[OsString]) -> String {
    use clap::error::{ContextKind, ContextValue};
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(name))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(why) = flags::names::refusal(name)
        && !is_ours(name)
    {
        return format!("error: {why}");
    }
    one_line(&error.render().to_string(), arguments)
}

/// Whether some command has this long flag.
fn is_ours(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    let program = Cli::command();
    program.get_subcommands().any(|command| command.get_arguments().any(|flag| flag.get_long() == Some(name)))
}

/// What clap has to say about wrong `arguments`, without the usage that it adds.
fn one_line(message: &str, arguments: &[OsString]) -> String {
    let first: Vec<&str> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let more = message.lines().map(str::trim).find(|line| line.starts_with("tip: "));
    let tip = more.map(|tip| format!(" ({tip})")).unwrap_or_default();
    let program = Cli::command();
    let command = subcommand(&program, arguments);
    let command = command.map(|command| format!("{} ", command.get_name())).unwrap_or_default();
    format!("{}{tip}; see moeslice {command}--help", first.join(" "))
}
