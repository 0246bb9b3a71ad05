//! `moeslice plan`: what every number of experts would take and cover, and the plan for one.

use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{Console, print, print_json, print_styled};
use crate::flags::mtp::{Mtp, MtpFlag};
use crate::flags::page;
use crate::flags::selection::{KEEP_HELP, SelectionFlags, open_usage};
use crate::moe::{MoeModel, ShardPolicy};
use crate::plan::KeepTarget;
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
    pub keep: Option<KeepTarget>,
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
    pub choose: SelectionFlags,
}

/// Runs `plan`.
pub fn plan(args: &PlanArgs, console: Console) -> Result<(), Failure> {
    let model = args.mtp.open(&args.model, console)?;
    let selection = args.choose.selection();
    let usage = open_usage(&args.usage, &model, console)?;
    let selection = selection.resolved(&usage)?;
    let Some(keep) = &args.keep else {
        let size = |k: u32| Ok(selection.file_bytes(&model, &usage, &k.to_string(), k, ShardPolicy::Keep)?);
        let table =
            PlanTable::new(&selection.planner(&model, &usage)?, &size, args.every).map_err(Failure::input)?;
        if args.json {
            print_json(&table)?
        } else {
            print_styled(&table.text(&console.style()))?
        }
        return Ok(());
    };
    selection.check_early(&model, keep, console)?;
    let plan = selection.plan(&model, &usage, keep, ShardPolicy::Keep)?;
    remark_mtp(&model, args.mtp, plan.k, console);
    page::stability(&selection, &model, &usage, &plan, console)?;
    let Some(output) = args.output.as_ref().filter(|output| *output != Path::new("-")) else {
        return Ok(print(&plan.to_json())?);
    };
    let mut outputs = OutputFiles::default();
    outputs.add_small(output, args.force)?;
    outputs.check_inputs(model.files().chain([args.usage.as_path()]))?;
    write_small(output, plan.to_json().as_bytes(), args.force, console)?;
    console.remark(&format!(
        "wrote {}: {} of {} experts stay",
        output.display(),
        plan.k,
        model.experts.n_expert
    ));
    Ok(())
}

/// Says which layers a plan does not name.
fn remark_mtp(model: &MoeModel, flag: MtpFlag, k: u32, console: Console) {
    let passed_over = model.experts.layers.iter().filter(|layer| model.passes_over(layer.layer));
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
        console.remark(&text);
    }
}
