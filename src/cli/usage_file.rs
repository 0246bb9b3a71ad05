//! Usage files as commands take them: what `report`, `merge` and the cutting commands read.

use super::failure::Failure;
use super::output::{self, remark};
use super::outputs::{Outputs, write_small};
use super::source::Source;
use crate::profile::{self, Usage};
use crate::report::UsageReport;
use clap::Args;
use std::path::{Path, PathBuf};

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

/// Arguments of `merge`.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// The usage files to join, of one model
    #[arg(value_name = "U.json", required = true, num_args = 2..)]
    pub usages: Vec<PathBuf>,
    /// The usage file to write; "-" for stdout
    #[arg(short, long, value_name = "U.json")]
    pub output: PathBuf,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
}

/// Reads the usage in `path`, a usage file or an imatrix, and checks that it is that of the model. Counts of
/// layers that are not to choose from are left out.
pub fn open(path: &Path, source: &Source, quiet: bool) -> Result<Usage, Failure> {
    let imported =
        profile::open(path, &source.model, &source.experts, &source.identity).map_err(Failure::input)?;
    for text in &imported.remarks {
        remark(quiet, text);
    }
    let mut usage = imported.usage;
    usage.layers.retain(|layer| !source.passes_over(layer.layer));
    Ok(usage)
}

/// Runs `report`.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let usage = Usage::read(&args.usage).map_err(Failure::input)?;
    let report = UsageReport::new(&usage).ok_or_else(|| {
        Failure::input(anyhow::anyhow!("{}: no token was routed in it", args.usage.display()))
    })?;
    if args.json { output::print_json(&report) } else { output::print(&report.to_string()) }
}

/// Runs `merge`.
pub fn merge(args: &MergeArgs, quiet: bool) -> Result<(), Failure> {
    let to_stdout = args.output == Path::new("-");
    if !to_stdout {
        let mut outputs = Outputs::default();
        outputs.add_small(&args.output, args.force)?;
        outputs.check_inputs(args.usages.iter().map(PathBuf::as_path))?;
    }
    let read = |path: &PathBuf| Ok((path.clone(), Usage::read(path).map_err(Failure::input)?));
    let usages = args.usages.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let merged = profile::merge(&usages).map_err(Failure::input)?;
    for text in &merged.remarks {
        remark(quiet, text);
    }
    if to_stdout {
        return output::print(&merged.usage.to_json());
    }
    write_small(&args.output, merged.usage.to_json().as_bytes(), args.force)?;
    remark(quiet, &format!("wrote {}", args.output.display()));
    Ok(())
}
