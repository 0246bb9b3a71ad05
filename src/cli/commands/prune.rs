//! `moeslice prune`: a pruned model from a usage file or a plan.

use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::flags::mtp::MtpFlag;
use crate::cli::flags::output::CutFlags;
use crate::cli::flags::selection::{KEEP_HELP, SelectionFlags, open_usage};
use crate::cli::output_files::OutputFiles;
use crate::plan::{self, KeepTarget, Plan};
use crate::progress::Interrupt;
use crate::sys::catch_interrupts;
use clap::{ArgGroup, Args};
use std::path::{Path, PathBuf};

/// Arguments of `prune`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("choice").args(["usage", "plan"]).required(true)))]
pub struct PruneArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// The usage file to choose from, or an imatrix of llama-imatrix
    #[arg(long, value_name = "U.json", requires = "keep")]
    pub usage: Option<PathBuf>,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true, conflicts_with = "plan")]
    pub keep: Option<KeepTarget>,
    /// The plan to cut by
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: SelectionFlags,
    #[command(flatten)]
    pub cut: CutFlags,
}

impl PruneArgs {
    /// Refuses an output that is the usage or plan at `path`; from here on Ctrl-C is heard.
    fn check_outputs(&self, path: &Path) -> Result<Interrupt, Failure> {
        let mut outputs = OutputFiles::default();
        outputs.add(&self.cut.output, &self.cut.output)?;
        outputs.check_inputs([path])?;
        Ok(catch_interrupts())
    }
}

/// Runs `prune`.
pub fn prune(args: &PruneArgs, console: Console) -> Result<(), Failure> {
    match args.plan {
        Some(_) => args.mtp.refuse_profile()?,
        None => args.mtp.refuse_plan("--usage names none")?,
    }
    let model = args.mtp.open(&args.model, console)?;
    if let Some(path) = &args.plan {
        if let Some(flag) = args.choose.given() {
            return Err(Failure::arguments(format!(
                "{flag} has no effect on a plan, which says what stays: leave it out"
            )));
        }
        let mut plan = Plan::read(path).map_err(Failure::input)?;
        plan.leave_out(model.written());
        let model_match =
            plan.check(model.written(), &model.identity, path, model.path()).map_err(Failure::input)?;
        if let Some(text) = model_match.remark() {
            console.remark(text);
        }
        let interrupt = args.check_outputs(path)?;
        return args.cut.cut(&model, &plan, None, console, interrupt)?.print(args.cut.json, console);
    }
    let (Some(path), Some(keep)) = (&args.usage, &args.keep) else {
        return Err(Failure::arguments("give --usage and --keep, or --plan"));
    };
    let selection = args.choose.selection();
    selection.check_early(&model, keep)?;
    let usage = open_usage(path, &model, console)?;
    let plan = selection.plan(&model, &usage, keep, args.cut.shards)?;
    let interrupt = args.check_outputs(path)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    args.cut.cut(&model, &plan, coverages.as_ref(), console, interrupt)?.print(args.cut.json, console)
}
