//! `moeslice prune`: a pruned model from a usage file or a plan.

use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::cut::{CutFlags, remark_kinship};
use super::failure::Failure;
use super::source::Source;
use super::usage_file;
use crate::plan::{self, Keep, Plan};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `prune`.
#[derive(Args, Clone, Debug)]
pub struct PruneArgs {
    /// The model, a GGUF file; any shard of several (-m)
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
    #[arg(long, value_name = "K", help = KEEP_HELP, conflicts_with = "plan")]
    pub keep: Option<Keep>,
    /// The plan to cut by
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    #[command(flatten)]
    pub choose: ChooseFlags,
    #[command(flatten)]
    pub cut: CutFlags,
}

/// Runs `prune`.
pub fn prune(args: &PruneArgs, quiet: bool) -> Result<(), Failure> {
    super::catch_interrupts();
    let source = Source::open(&args.model)?;
    if let Some(path) = &args.plan {
        let plan = Plan::read(path).map_err(Failure::input)?;
        let kinship = plan
            .check(&source.experts, &source.identity, path, source.model.path())
            .map_err(Failure::input)?;
        remark_kinship(kinship, quiet);
        return args.cut.cut(&source, &plan, None, quiet)?.print(args.cut.json, quiet);
    }
    let (Some(path), Some(keep)) = (&args.usage, &args.keep) else {
        return Err(Failure::arguments("give --usage and --keep, or --plan"));
    };
    let chooser = args.choose.chooser();
    chooser.check_early(&source, keep)?;
    let usage = usage_file::open(path, &source, quiet)?;
    let plan = chooser.plan(&source, &usage, keep, args.cut.shards)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    args.cut.cut(&source, &plan, coverages.as_ref(), quiet)?.print(args.cut.json, quiet)
}
