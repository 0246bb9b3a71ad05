//! `moeslice plan`: what every number of experts would weigh and cover, and the plan for one.

use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::failure::Failure;
use super::mtp::{Mtp, MtpFlag};
use super::output::{self, remark};
use super::outputs::{Outputs, write_small};
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
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true)]
    pub keep: Option<Keep>,
    /// The plan to write; default: stdout
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
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: ChooseFlags,
}

/// Runs `plan`.
pub fn plan(args: &PlanArgs, quiet: bool) -> Result<(), Failure> {
    let source = Source::open_to_cut(&args.model, args.mtp, quiet)?;
    let chooser = args.choose.chooser();
    let usage = usage_file::open(&args.usage, &source, quiet)?;
    let Some(keep) = &args.keep else {
        let size = |k: u32| chooser.file_bytes(&source, &usage, &k.to_string(), k, ShardPolicy::Keep);
        let table =
            PlanTable::new(&chooser.planner(&source, &usage)?, &size, args.every).map_err(Failure::input)?;
        return if args.json { output::print_json(&table) } else { output::print(&table.to_string()) };
    };
    chooser.check_early(&source, keep)?;
    let plan = chooser.plan(&source, &usage, keep, ShardPolicy::Keep)?;
    remark_nextn(&source, args.mtp, plan.k, quiet);
    let Some(output) = args.output.as_ref().filter(|output| *output != Path::new("-")) else {
        return output::print(&plan.to_json());
    };
    let mut outputs = Outputs::default();
    outputs.add_small(output, args.force)?;
    outputs.check_inputs(source.files().chain([args.usage.as_path()]))?;
    write_small(output, plan.to_json().as_bytes(), args.force)?;
    remark(
        quiet,
        &format!("wrote {}: {} of {} experts stay", output.display(), plan.k, source.experts.n_expert),
    );
    Ok(())
}

/// Says which layers a plan does not name.
fn remark_nextn(source: &Source, flag: MtpFlag, k: u32, quiet: bool) {
    let passed_over = source.experts.layers.iter().filter(|layer| source.passes_over(layer.layer));
    for layer in passed_over {
        let il = layer.layer;
        let text = match flag.mtp {
            Some(Mtp::Drop) => {
                format!("layer {il}, the MTP block, is not in the plan: prune with --mtp drop")
            }
            _ => format!(
                "layer {il}, the MTP block, is not in the plan: add {} of its {} ids to \"keep\" before you prune",
                layer.kept(k),
                layer.n_expert
            ),
        };
        remark(quiet, &text);
    }
}
