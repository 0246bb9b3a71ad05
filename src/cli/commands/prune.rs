//! `moeslice prune`: a pruned model from a usage file or a plan.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::OutputFiles;
use crate::flags::card::{self, CardSubject};
use crate::flags::mtp::MtpFlag;
use crate::flags::output::CutFlags;
use crate::flags::page;
use crate::flags::selection::{KEEP_HELP, SelectionFlags, open_usage};
use crate::plan::{self, KeepTarget, Plan};
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
    /// Write a model card, README.md, beside the pruned model
    #[arg(long)]
    pub card: bool,
    /// The figures that `eval` measured, for the card
    #[arg(long, value_name = "E.json", requires = "card")]
    pub eval: Option<PathBuf>,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: SelectionFlags,
    #[command(flatten)]
    pub cut: CutFlags,
}

impl PruneArgs {
    /// Refuses a card that could not be written, or would replace what is read.
    fn check_card(&self, path: &Path) -> Result<(), Failure> {
        let mut outputs = OutputFiles::default();
        outputs.add(&self.cut.output, &self.cut.output)?;
        if self.card {
            card::check(&self.cut, &mut outputs)?;
        }
        outputs.check_inputs([Some(path), self.eval.as_deref()].into_iter().flatten())
    }
}

/// Runs `prune`.
pub fn prune(args: &PruneArgs, console: Console) -> Result<(), Failure> {
    match args.plan {
        Some(_) => args.mtp.refuse_profile()?,
        None => args.mtp.refuse_plan("--usage names none")?,
    }
    let model = args.mtp.open(&args.model, console)?;
    let measured = args.eval.as_deref().map(|path| {
        let file = model.file_name();
        page::open_eval(path, &model.identity.router_hash, &file)
    });
    let measured = measured.transpose()?;
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
        args.check_card(path)?;
        let interrupt = catch_interrupts();
        let written = args.cut.cut(&model, (&plan, None), &[path], console, interrupt)?;
        if args.card {
            let (plan, measured) = (&plan, measured.as_ref());
            let subject = CardSubject { model: &model, plan, coverages: None, stability: None, measured };
            card::write(&args.cut, &subject, &written, console)?;
        }
        return written.print(args.cut.json, console);
    }
    let (Some(path), Some(keep)) = (&args.usage, &args.keep) else {
        return Err(Failure::arguments("give --usage and --keep, or --plan"));
    };
    let selection = args.choose.selection();
    selection.check_early(&model, keep, console)?;
    let usage = open_usage(path, &model, console)?;
    let selection = selection.resolved(&usage)?;
    let plan = selection.plan(&model, &usage, keep, args.cut.shards)?;
    args.check_card(path)?;
    let interrupt = catch_interrupts();
    let coverages = plan::coverage(&usage, &plan.keep);
    let stability = page::stability(&selection, &model, &usage, &plan, console)?;
    let written = args.cut.cut(&model, (&plan, coverages.as_ref()), &[path], console, interrupt)?;
    if args.card {
        let subject = CardSubject {
            model: &model,
            plan: &plan,
            coverages: coverages.as_ref(),
            stability: stability.as_ref(),
            measured: measured.as_ref(),
        };
        card::write(&args.cut, &subject, &written, console)?;
    }
    written.print(args.cut.json, console)
}
