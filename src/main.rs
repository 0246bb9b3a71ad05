//! The `moeslice` program: arguments → command → exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(moeslice::cli::main(std::env::args_os()))
}
