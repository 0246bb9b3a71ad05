//! `moeslice prune`: a pruned model from a usage file or a plan.

use super::INTERRUPT;
use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::cut::{CutFlags, remark_kinship};
use super::failure::Failure;
use super::mtp::MtpFlag;
use super::outputs::Outputs;
use super::source::Source;
use super::usage_file;
use crate::plan::{self, Keep, Plan};
use crate::sys::catch_interrupts;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `prune`.
#[derive(Args, Clone, Debug)]
pub struct PruneArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// The usage file to choose from, or an imatrix of llama-imatrix
    #[arg(
        long,
        value_name = "U.json",
        required_unless_present = "plan",
        conflicts_with = "plan",
        requires = "keep"
    )]
    pub usage: Option<PathBuf>,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true, conflicts_with = "plan")]
    pub keep: Option<Keep>,
    /// The plan to cut by
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: ChooseFlags,
    #[command(flatten)]
    pub cut: CutFlags,
}

impl PruneArgs {
    /// Refuses an output that is the usage or plan at `path`; from here on Ctrl-C is heeded.
    fn check_outputs(&self, path: &Path) -> Result<(), Failure> {
        let mut outputs = Outputs::default();
        outputs.add(&self.cut.output, &self.cut.output)?;
        outputs.check_inputs([path])?;
        catch_interrupts(&INTERRUPT);
        Ok(())
    }
}

/// Runs `prune`.
pub fn prune(args: &PruneArgs, quiet: bool) -> Result<(), Failure> {
    match args.plan {
        Some(_) => args.mtp.refuse_profile()?,
        None => args.mtp.refuse_plan("--usage names none")?,
    }
    let source = Source::open_to_cut(&args.model, args.mtp, quiet)?;
    if let Some(path) = &args.plan {
        if let Some(flag) = args.choose.given() {
            return Err(Failure::arguments(format!(
                "{flag} has no effect on a plan, which says what stays: leave it out"
            )));
        }
        let mut plan = Plan::read(path).map_err(Failure::input)?;
        plan.leave_out(source.written());
        let kinship = plan
            .check(source.written(), &source.identity, path, source.model.path())
            .map_err(Failure::input)?;
        remark_kinship(kinship, quiet);
        args.check_outputs(path)?;
        return args.cut.cut(&source, &plan, None, quiet)?.print(args.cut.json, quiet);
    }
    let (Some(path), Some(keep)) = (&args.usage, &args.keep) else {
        return Err(Failure::arguments("give --usage and --keep, or --plan"));
    };
    let chooser = args.choose.chooser();
    chooser.check_early(&source, keep)?;
    let usage = usage_file::open(path, &source, quiet)?;
    let plan = chooser.plan(&source, &usage, keep, args.cut.shards)?;
    args.check_outputs(path)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    args.cut.cut(&source, &plan, coverages.as_ref(), quiet)?.print(args.cut.json, quiet)
}
