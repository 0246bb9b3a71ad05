//! The page of `eval`: that of the usage with the measurement in it, or that of the measurement alone.

use super::args::EvalArgs;
use super::candidates::{Candidates, selection};
use crate::console::Console;
use crate::console::failure::Failure;
use crate::evaluate::Evaluation;
use crate::flags::page;
use crate::moe::{MoeModel, ShardPolicy};
use crate::page::{EvaluationPage, UsagePage, telling_row};
use crate::score::Score;
use std::path::Path;

/// Writes it.
pub fn write(
    path: &Path,
    args: &EvalArgs,
    (model, candidates): (&MoeModel, &Candidates),
    evaluation: &Evaluation,
    console: Console,
) -> Result<(), Failure> {
    let command = &page::command_line();
    let text = of_usage(args, (model, candidates), evaluation, command)?;
    // A measurement without a row has no page.
    match text.or_else(|| EvaluationPage { measured: evaluation, command }.render()) {
        Some(text) => page::write(path, &text, args.force, console),
        None => Ok(()),
    }
}

/// The page of the usage; `None` without one. It is about the cut that tells most.
fn of_usage(
    args: &EvalArgs,
    (model, candidates): (&MoeModel, &Candidates),
    evaluation: &Evaluation,
    command: &[String],
) -> Result<Option<String>, Failure> {
    let Some(usage) = &candidates.usage else { return Ok(None) };
    let telling = telling_row(evaluation).filter(|row| row.masked);
    let place = evaluation.rows.iter().filter(|row| row.masked).position(|row| Some(row) == telling);
    let plan = place.and_then(|at| candidates.list.get(at)).map(|candidate| &candidate.selected);
    let score = plan.and_then(|plan| plan.score.as_ref()).and_then(|name| name.parse().ok());
    let selection = selection(args, score.unwrap_or_else(|| Score::best_of(usage))).resolved(usage)?;
    let sizes = page::sizes(&selection, model, usage, plan, ShardPolicy::Keep)?;
    let (sizes, measured) = (Some(&sizes), Some(evaluation));
    Ok(UsagePage { usage, sizes, plan, bytes: None, measured, command }.render())
}
