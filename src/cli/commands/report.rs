//! `moeslice report`: how the routing of a usage file is spread, as tables or as a page.

use crate::console::failure::Failure;
use crate::console::output_files::OutputFiles;
use crate::console::{self, Console};
use crate::flags::mtp::MtpFlag;
use crate::flags::page;
use crate::flags::selection::{KEEP_HELP, SelectionFlags, open_usage};
use crate::moe::{KeptError, MoeModel, ShardPolicy};
use crate::page::UsagePage;
use crate::plan::{KeepTarget, Plan};
use crate::report::UsageReport;
use crate::usage::Usage;
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
    /// Write a page in place of the tables, with plots, in one file
    #[arg(long, value_name = "R.html", conflicts_with = "json")]
    pub html: Option<PathBuf>,
    /// The figures that `eval` measured of this model
    #[arg(long, value_name = "E.json")]
    pub eval: Option<PathBuf>,
    /// The model, a GGUF file; the page then has sizes
    #[arg(short, long, value_name = "MODEL", requires = "html")]
    pub model: Option<PathBuf>,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true, requires = "model")]
    pub keep: Option<KeepTarget>,
    /// The plan that the page is about
    #[arg(long, value_name = "PLAN.json", requires = "html", conflicts_with = "keep")]
    pub plan: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "html")]
    pub force: bool,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: SelectionFlags,
}

/// Runs `report`.
pub fn report(args: &ReportArgs, console: Console) -> Result<(), Failure> {
    if args.model.is_none() {
        let given = args.choose.given().or(args.mtp.mtp.map(|_| "--mtp"));
        if let Some(flag) = given {
            return Err(Failure::arguments(format!("{flag} has no effect without --model")));
        }
    }
    let model = args.model.as_ref().map(|path| args.mtp.open(path, console)).transpose()?;
    let usage = match &model {
        Some(model) => open_usage(&args.usage, model, console)?,
        None => {
            let usage = Usage::read(&args.usage).map_err(Failure::input)?;
            usage.incomplete().iter().for_each(|text| console.remark(text));
            usage
        }
    };
    let measured =
        args.eval.as_deref().map(|path| page::open_eval(path, &usage.model.router_hash, &usage.model.file));
    let measured = measured.transpose()?;
    let Some(html) = &args.html else {
        let mut report = UsageReport::new(&usage).ok_or_else(|| nothing_routed(&args.usage))?;
        report.measured = measured;
        if args.json {
            console::print_json(&report)?
        } else {
            console::print_styled(&report.text(&console.style()))?
        }
        return Ok(());
    };
    let mut outputs = OutputFiles::default();
    outputs.add_small(html, args.force)?;
    let inputs = [Some(args.usage.as_path()), args.eval.as_deref(), args.plan.as_deref()];
    let files = model.iter().flat_map(MoeModel::files);
    outputs.check_inputs(inputs.into_iter().flatten().chain(files))?;

    let selection = args.choose.selection().resolved(&usage)?;
    let plan = match (&args.plan, &args.keep, &model) {
        (Some(path), ..) => Some(plan_of(path, &usage, model.as_ref())?),
        (None, Some(keep), Some(model)) => {
            selection.check_early(model, keep, console)?;
            Some(selection.plan(model, &usage, keep, ShardPolicy::Keep)?)
        }
        _ => None,
    };
    let sizes = model
        .as_ref()
        .map(|model| page::sizes(&selection, model, &usage, plan.as_ref(), ShardPolicy::Keep))
        .transpose()?;
    let page = UsagePage {
        usage: &usage,
        sizes: sizes.as_ref(),
        plan: plan.as_ref(),
        bytes: None,
        measured: measured.as_ref(),
        command: &page::command_line(),
    };
    let text = page.render().ok_or_else(|| nothing_routed(&args.usage))?;
    page::write(html, &text, args.force, console)
}

/// The plan at `path`, which must be one for the model of the usage.
fn plan_of(path: &Path, usage: &Usage, model: Option<&MoeModel>) -> Result<Plan, Failure> {
    let plan = Plan::read(path).map_err(Failure::input)?;
    let fault = |what: String| Failure::input(anyhow::anyhow!("{}: {what}", path.display()));
    if let Some(model) = model {
        plan.check(model.written(), &model.identity, path, model.path()).map_err(Failure::input)?;
    } else if let Some(source) =
        plan.source.as_ref().filter(|source| source.router_hash != usage.model.router_hash)
    {
        return Err(fault(format!("a plan for another model, {}: its routers differ", source.file)));
    }
    for (layer, ids) in plan.keep.iter() {
        let Some(n_expert) = usage.layer(layer).map(|layer| layer.total.count.len() as u32) else { continue };
        if let Some(&id) = ids.iter().find(|&&id| id >= n_expert) {
            return Err(fault(KeptError::Id { layer, id, n_expert }.to_string()));
        }
    }
    Ok(plan)
}

fn nothing_routed(path: &Path) -> Failure {
    Failure::input(anyhow::anyhow!("{}: no token was routed in it", path.display()))
}
