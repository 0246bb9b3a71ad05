//! `moeslice inspect`: the experts of a model file.

use crate::console::failure::Failure;
use crate::console::{Console, print_json, print_styled};
use crate::moe::MoeModel;
use crate::report::Inspection;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Runs `inspect`.
pub fn inspect(args: &InspectArgs, console: Console) -> Result<(), Failure> {
    let model = MoeModel::open(&args.model).map_err(Failure::input)?;
    let inspection = Inspection::of(&model).map_err(Failure::input)?;
    if args.json {
        print_json(&inspection)?
    } else {
        print_styled(&inspection.text(&console.style()))?
    }
    Ok(())
}
