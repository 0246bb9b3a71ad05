//! `moeslice report`: how the routing of a usage file is spread.

use crate::cli::console::{self, Console};
use crate::cli::failure::Failure;
use crate::report::UsageReport;
use crate::usage::Usage;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// The usage file
    #[arg(value_name = "U.json")]
    pub usage: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Runs `report`.
pub fn report(args: &ReportArgs, console: Console) -> Result<(), Failure> {
    let usage = Usage::read(&args.usage).map_err(Failure::input)?;
    let report = UsageReport::new(&usage).ok_or_else(|| {
        Failure::input(anyhow::anyhow!("{}: no token was routed in it", args.usage.display()))
    })?;
    if args.json {
        console::print_json(&report)?
    } else {
        console::print(&report.text(&console.style()))?
    }
    Ok(())
}
