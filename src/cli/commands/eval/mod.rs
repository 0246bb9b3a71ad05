//! `moeslice eval`: what a model is worth on texts, alone, beside its base, or as if it had been cut.

mod candidates;
mod session;

pub(super) use session::{eval_failure, room};

use crate::cli::console::{Console, print, print_json};
use crate::cli::failure::Failure;
use crate::cli::flags::eval_texts::EvalTextFlags;
use crate::cli::flags::llama::LlamaFlags;
use crate::cli::output_files::{OutputFiles, write_small};
use crate::evaluate::{self, Evaluation, Knee};
use crate::moe::MoeModel;
use crate::plan::{KeepTarget, Pins};
use crate::score::Blend;
use crate::sys::catch_interrupts;
use clap::Args;
use session::Session;
use std::path::PathBuf;

/// Arguments of `eval`.
#[derive(Args, Clone, Debug)]
pub struct EvalArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// Compare with this model, from which MODEL was cut
    #[arg(long, value_name = "BASE", conflicts_with_all = ["usage", "plan"])]
    pub base: Option<PathBuf>,
    /// Try cuts by this usage file, or imatrix, without writing them
    #[arg(long, value_name = "U.json", requires = "keep")]
    pub usage: Option<PathBuf>,
    /// The numbers of experts to try, each as in `prune --keep`
    #[arg(long, value_name = "K,…", value_delimiter = ',', requires = "usage", allow_hyphen_values = true)]
    pub keep: Vec<KeepTarget>,
    /// Try the cut of this plan, too. Repeatable
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Vec<PathBuf>,
    /// What ranks the experts; several scores are tried beside each other
    #[arg(long, value_name = "SCORE,…", value_delimiter = ',', requires = "usage")]
    pub score: Vec<String>,
    /// Experts that stay whatever their score
    #[arg(long, value_name = "LAYER:ID,…", requires = "usage")]
    pub always_keep: Option<Pins>,
    /// Keep super experts whatever their score
    #[arg(long, requires = "usage")]
    pub protect_super: bool,
    /// Share of each corpus in the ranking, such as dev=0.5,pm=0.5
    #[arg(long, value_name = "NAME=SHARE,…", requires = "usage")]
    pub blend: Option<Blend>,
    /// Also measure the model against itself, computed in ubatches of another size or on another device: what is mere noise
    #[arg(long, value_name = "UBATCH|DEV", num_args = 0..=1, default_missing_value = "")]
    pub noise: Option<String>,
    /// The measurement to write
    #[arg(short, long, value_name = "E.json")]
    pub output: Option<PathBuf>,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub texts: EvalTextFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `eval`.
pub fn eval(args: &EvalArgs, console: Console) -> Result<(), Failure> {
    let mut model = MoeModel::open(&args.model).map_err(Failure::input)?;
    // An ordinary context does not run the blocks of multi-token prediction.
    model.choose_from_trunk();
    let base = args.base.as_deref().map(MoeModel::open).transpose().map_err(Failure::input)?;
    let base_remark = match &base {
        Some(base) => evaluate::check_base(&model, base).map_err(Failure::input)?,
        None => None,
    };
    let candidates = candidates::of(args, &model, console)?;
    let corpora = args.texts.read(&model, console)?;
    let mut outputs = OutputFiles::default();
    if let Some(output) = &args.output {
        outputs.add_small(output, args.force)?;
    }
    let plans = args.plan.iter().chain(&args.usage).map(PathBuf::as_path);
    let files = model.files().chain(base.iter().flat_map(MoeModel::files));
    outputs.check_inputs(files.chain(plans).chain(args.texts.inputs(&corpora)))?;

    let interrupt = catch_interrupts();
    let usage = candidates.usage.as_ref();
    let (session, mut evaluation) = Session::new(args, &model, &corpora, usage, (console, interrupt))?;
    evaluation.remarks.extend(base_remark);
    let is_sweep = !candidates.list.is_empty();
    let measured = match &base {
        Some(base) => session.compare(base, &mut evaluation),
        None if is_sweep => session.sweep(&candidates.list, &mut evaluation),
        None => session.alone(&mut evaluation),
    };
    let stopped = match measured {
        Ok(()) => false,
        Err(Failure::Interrupted) if !evaluation.rows.is_empty() => true,
        Err(failure) => return Err(failure),
    };
    evaluation.run.wall_seconds = session.seconds();
    let curve: Vec<(u32, f64)> =
        evaluation.rows.iter().filter_map(|row| Some((row.k, row.all.kl_mean()?))).collect();
    evaluation.knee = Knee::of(&curve);
    finish(args, &evaluation, is_sweep, console)?;
    if stopped {
        let rows = evaluation.rows.len();
        return Err(Failure::Stopped(format!("interrupted; the {rows} rows that were finished are kept")));
    }
    Ok(())
}

/// Prints what was not printed yet, and writes the file.
fn finish(args: &EvalArgs, evaluation: &Evaluation, is_sweep: bool, console: Console) -> Result<(), Failure> {
    if let Some(output) = &args.output {
        write_small(output, evaluation.to_json().as_bytes(), args.force)?;
        console.remark(&format!("wrote {}", output.display()));
    }
    if args.json {
        return Ok(print_json(evaluation)?);
    }
    if let Some(row) = evaluation.rows.first().filter(|_| !is_sweep) {
        print(&evaluation.corpora_table(row))?;
    }
    Ok(print(&evaluation.notes())?)
}
