//! The `moeslice` program: arguments → command → exit code.

fn main() {}
