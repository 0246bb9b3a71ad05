//! The `moeslice` program: arguments → command → exit code.

fn main() -> std::process::ExitCode {
    moeslice::cli::run(std::env::args_os())
}
