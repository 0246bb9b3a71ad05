//! What pages and cards have in common: what they show, and the measurement that they take.

use super::selection::Selection;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::write_small;
use crate::evaluate::Evaluation;
use crate::moe::{MoeModel, ShardPolicy};
use crate::plan::Plan;
use crate::report::{PlanTable, Stability, StabilityRow, steps};
use crate::usage::Usage;
use std::path::Path;

/// Writes a page.
pub fn write(path: &Path, text: &str, force: bool, console: Console) -> Result<(), Failure> {
    write_small(path, text.as_bytes(), force, console)?;
    console.remark(&format!("wrote {}", path.display()));
    Ok(())
}

/// The running command line, the program by its name alone.
pub fn command_line() -> Vec<String> {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    ["moeslice".to_owned()].into_iter().chain(arguments).collect()
}

/// The figures at `path`, which must be those of the model with these routers.
pub fn open_eval(path: &Path, router_hash: &str, model: &str) -> Result<Evaluation, Failure> {
    let measured = Evaluation::read(path).map_err(Failure::input)?;
    measured.check_model(router_hash, path, model).map_err(Failure::input)?;
    Ok(measured)
}

/// Whether half of the text would have made the same plan; `None` where it cannot be told. Says so when it would not.
pub fn stability(
    selection: &Selection,
    model: &MoeModel,
    usage: &Usage,
    plan: &Plan,
    console: Console,
) -> Result<Option<StabilityRow>, Failure> {
    let planner = selection.planner(model, usage)?;
    let stability = Stability::by_planner(&planner, &[plan.k]).map_err(Failure::input)?;
    let row = stability.and_then(|stability| stability.rows.into_iter().next());
    if let Some(row) = row.as_ref().filter(|row| row.wants_more_text()) {
        console.remark(&row.meaning());
    }
    Ok(row)
}

/// The usual numbers of experts and that of the plan.
pub fn sizes(
    selection: &Selection,
    model: &MoeModel,
    usage: &Usage,
    plan: Option<&Plan>,
    shards: ShardPolicy,
) -> Result<PlanTable, Failure> {
    let experts = model.chosen();
    let usual =
        steps(experts.n_expert, experts.n_expert_used).into_iter().filter_map(|k| experts.next_count(k));
    let mut ks: Vec<u32> = usual.chain(plan.map(|plan| plan.k)).collect();
    ks.sort_unstable();
    ks.dedup();
    let size = |k: u32| Ok(selection.file_bytes(model, usage, &k.to_string(), k, shards)?);
    PlanTable::of(&selection.planner(model, usage)?, &size, ks).map_err(Failure::input)
}
