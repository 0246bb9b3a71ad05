//! `moeslice eval`: what a model is worth on texts, alone, beside its base, or as if it had been cut.

mod args;
mod candidates;
mod closed_loop;
mod failure;
mod memory;
mod page;
mod session;

pub use args::EvalArgs;
pub(super) use failure::eval_failure;
pub(super) use session::room;

use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{Console, print, print_json, print_styled};
use crate::evaluate::{self, Evaluation, Knee};
use crate::moe::MoeModel;
use crate::sys::catch_interrupts;
use session::Session;
use std::path::PathBuf;

/// Runs `eval`.
pub fn eval(args: &EvalArgs, console: Console) -> Result<(), Failure> {
    let mut model = MoeModel::open(&args.model).map_err(Failure::input)?;
    // An ordinary context does not run the blocks of multi-token prediction.
    model.choose_from_trunk();
    closed_loop::check(&args.cache, &model)?;
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
    if let Some(report) = &args.report {
        outputs.add_small(report, args.force)?;
    }
    let plans = args.plan.iter().chain(&args.usage).map(PathBuf::as_path);
    let files = model.files().chain(base.iter().flat_map(MoeModel::files));
    outputs.check_inputs(files.chain(plans).chain(args.texts.inputs(&corpora)))?;

    let interrupt = catch_interrupts();
    let usage = candidates.usage.as_ref();
    // Rows that are shown as they come.
    let is_sweep = !candidates.list.is_empty() || args.cache.is_given();
    let beside = (usage, base.as_ref(), !candidates.list.is_empty());
    let (session, mut evaluation) = Session::new(args, &model, &corpora, beside, (console, interrupt))?;
    evaluation.remarks.extend(base_remark);
    let measured = match &base {
        Some(base) => session.compare(base, &mut evaluation),
        None if args.cache.is_given() => closed_loop::measure(&session, &args.cache, &mut evaluation),
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
    if let Some(report) = &args.report {
        page::write(report, args, (&model, &candidates), &evaluation, console)?;
    }
    if stopped {
        let rows = evaluation.rows.len();
        return Err(Failure::Stopped(format!("interrupted; the {rows} rows that were finished are kept")));
    }
    Ok(())
}

/// Prints what was not printed yet, and writes the file.
fn finish(args: &EvalArgs, evaluation: &Evaluation, is_sweep: bool, console: Console) -> Result<(), Failure> {
    if let Some(output) = &args.output {
        write_small(output, evaluation.to_json().as_bytes(), args.force, console)?;
        console.remark(&format!("wrote {}", output.display()));
    }
    if args.json {
        return Ok(print_json(evaluation)?);
    }
    if let Some(row) = evaluation.rows.first().filter(|_| !is_sweep) {
        print_styled(&evaluation.corpora_table(row, &console.style()))?;
    }
    Ok(print(&evaluation.notes())?)
}
