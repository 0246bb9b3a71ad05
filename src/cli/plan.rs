//! `moeslice plan`: what every number of experts would weigh and cover, and the plan for one.

use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::failure::Failure;
use super::output::{self, remark};
use super::source::Source;
use super::usage_file;
use crate::moe::ShardPolicy;
use crate::plan::Keep;
use crate::report::PlanTable;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// The usage file to choose from, or an imatrix of llama-imatrix
    #[arg(value_name = "U.json")]
    pub usage: PathBuf,
    /// The model, a GGUF file; any shard of several (-m)
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    #[arg(long, value_name = "K", help = KEEP_HELP, requires = "output")]
    pub keep: Option<Keep>,
    /// The plan to write; "-" for stdout (-o)
    #[arg(short, long, value_name = "PLAN.json", requires = "keep")]
    pub output: Option<PathBuf>,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
    /// Show every possible K, not just some
    #[arg(long)]
    pub every: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub choose: ChooseFlags,
}

/// Runs `plan`.
pub fn plan(args: &PlanArgs, quiet: bool) -> Result<(), Failure> {
    let source = Source::open(&args.model)?;
    let chooser = args.choose.chooser();
    let usage = usage_file::open(&args.usage, &source, quiet)?;
    let (Some(keep), Some(output)) = (&args.keep, &args.output) else {
        let size = |k: u32| chooser.file_bytes(&source, &usage, &k.to_string(), k, ShardPolicy::Keep);
        let table =
            PlanTable::new(&chooser.planner(&source, &usage)?, &size, args.every).map_err(Failure::input)?;
        return if args.json { output::print_json(&table) } else { output::print(&table.to_string()) };
    };
    chooser.check_early(&source, keep)?;
    let plan = chooser.plan(&source, &usage, keep, ShardPolicy::Keep)?;
    if output == Path::new("-") {
        return output::print(&plan.to_json());
    }
    super::write_small_output(output, plan.to_json().as_bytes(), args.force)?;
    remark(
        quiet,
        &format!("wrote {}: {} of {} experts stay", output.display(), plan.k, source.experts.n_expert),
    );
    Ok(())
}
