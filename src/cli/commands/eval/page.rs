//! The page of `eval`: that of the usage with the measurement in it, or that of the measurement alone.

use super::args::EvalArgs;
use super::candidates::{Candidates, selection};
use crate::console::Console;
use crate::console::failure::Failure;
use crate::evaluate::Evaluation;
use crate::flags::page::{self, PageSubject, command_line};
use crate::moe::{MoeModel, ShardPolicy};
use crate::page::{EvaluationPage, telling_row};
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
    let text = match of_usage(args, model, candidates, evaluation)? {
        Some(text) => text,
        None => {
            EvaluationPage { measured: evaluation, command: &command_line() }.render().unwrap_or_default()
        }
    };
    page::write(path, &text, args.force, console)
}

/// The page of the usage; `None` without one. It is about the cut that tells most.
fn of_usage(
    args: &EvalArgs,
    model: &MoeModel,
    candidates: &Candidates,
    evaluation: &Evaluation,
) -> Result<Option<String>, Failure> {
    let Some(usage) = &candidates.usage else { return Ok(None) };
    let telling = telling_row(evaluation).filter(|row| row.masked);
    let place = evaluation.rows.iter().filter(|row| row.masked).position(|row| Some(row) == telling);
    let plan = place.and_then(|at| candidates.list.get(at)).map(|candidate| &candidate.selected);
    let score = plan.and_then(|plan| plan.score.as_ref()).and_then(|name| name.parse().ok());
    let selection = selection(args, score.unwrap_or_else(|| Score::best_of(usage))).resolved(usage)?;
    let sizes = page::sizes(&selection, model, usage, plan, ShardPolicy::Keep)?;
    let measured = Some(evaluation);
    Ok(PageSubject { usage, sizes: Some(&sizes), plan, bytes: None, measured }.render())
}
