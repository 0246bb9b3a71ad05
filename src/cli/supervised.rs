//! Which commands run a model, and so run in a child that this process supervises.

use super::{Cli, Command};
use crate::console::{Console, say};
use crate::flags::llama::LlamaFlags;
use crate::supervise::{self, Outcome};
use crate::{llama, sys};
use std::ffi::OsString;
use std::time::Duration;

/// What this process is for.
pub enum Role {
    /// It does the work itself: the command runs no model.
    Alone,
    /// It does the work for the parent of this id.
    Child(u32),
    /// It supervises a child, which may be silent for so long; then it says besides what may be the cause.
    Parent(Option<Duration>, String),
}

/// What this process is for.
pub fn role(cli: &Cli) -> Role {
    let of = |flags: &LlamaFlags| (flags.stall_timeout, flags.suspects());
    let (limit, suspects) = match &cli.command {
        Command::Run(args) => of(&args.llama),
        Command::Profile(args) => of(&args.llama),
        Command::Trace(args) => of(&args.llama),
        Command::Refine(args) => of(&args.llama),
        Command::Eval(args) => of(&args.llama),
        Command::Bench(args) => of(&args.llama),
        Command::Devices(args) => of(&args.llama),
        _ => return Role::Alone,
    };
    match supervise::supervisor() {
        Some(parent) => Role::Child(parent),
        None => Role::Parent((limit > 0).then(|| Duration::from_secs(limit)), suspects),
    }
}

/// Begins to be a supervised child.
pub fn begin(parent: u32) {
    supervise::begin(parent, llama::activity);
    llama::set_log_sink(supervise::log);
}

/// Supervises a child that does what `arguments` say; gives the exit code.
pub fn watch(arguments: &[OsString], limit: Option<Duration>, suspects: &str, console: Console) -> u8 {
    sys::leave_repeated_interrupts();
    let interrupt = sys::catch_interrupts();
    match supervise::supervise(arguments, limit, interrupt, &mut console.bar()) {
        Ok(Outcome::Exited(code)) => code,
        Ok(Outcome::Interrupted) => {
            say("interrupted; every output is there whole, or not at all");
            130
        }
        Ok(Outcome::Crashed { message, .. }) => {
            say(&format!("error: {message}"));
            1
        }
        Ok(Outcome::Stalled(stall)) => {
            let help = if stall.was_computing() {
                "smaller batches (-ub 64, -b 256), -fa off, fewer layers on the device (-ngl), or -dev none"
            } else {
                "less on the device (-cmoe, -ncmoe N, -ngl N), a smaller -c or -ub, or -dev none"
            };
            say(&format!("error: {stall}{suspects}; try {help}; --stall-timeout waits longer"));
            4
        }
        Err(error) => {
            say(&format!("error: cannot start a process for the model: {error}"));
            1
        }
    }
}
