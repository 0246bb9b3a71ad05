//! `moeslice completions`: what a shell needs to complete commands and flags.

use crate::console::failure::Failure;
use crate::console::print;
use clap::Args;
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell to write for
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Prints the script for `args.shell`. `program` is the whole command line.
pub fn completions(args: &CompletionsArgs, mut program: clap::Command) -> Result<(), Failure> {
    let name = program.get_name().to_owned();
    // Into memory first: clap panics when a pipe closes while it writes.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    Ok(print(&String::from_utf8_lossy(&script))?)
}
