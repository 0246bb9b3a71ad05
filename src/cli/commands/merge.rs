//! `moeslice merge`: usage files of one model, joined.

use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{self, Console};
use crate::usage::{self, Usage};
use clap::Args;
use std::path::{Path, PathBuf};

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

/// Runs `merge`.
pub fn merge(args: &MergeArgs, console: Console) -> Result<(), Failure> {
    let to_stdout = args.output == Path::new("-");
    if !to_stdout {
        let mut outputs = OutputFiles::default();
        outputs.add_small(&args.output, args.force)?;
        outputs.check_inputs(args.usages.iter().map(PathBuf::as_path))?;
    }
    let read = |path: &PathBuf| Ok((path.clone(), Usage::read(path).map_err(Failure::input)?));
    let usages = args.usages.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let merged = usage::merge(&usages).map_err(Failure::input)?;
    for text in &merged.remarks {
        console.remark(text);
    }
    if to_stdout {
        return Ok(console::print(&merged.usage.to_json())?);
    }
    write_small(&args.output, merged.usage.to_json().as_bytes(), args.force, console)?;
    console.remark(&format!("wrote {}", args.output.display()));
    Ok(())
}
