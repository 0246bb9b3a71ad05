//! The contexts that `eval` makes.

use super::args::EvalArgs;
use super::failure::eval_failure;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::evaluate::{Scorer, WhatIf};
use crate::llama::Model;
use crate::moe::{Experts, MoeModel};
use crate::preflight::{Demand, Wanted};
use crate::progress::Interrupt;
use crate::windows::WindowOptions;

/// The context of a model that is measured once.
pub fn of_one(
    planned: &Model,
    experts: &Experts,
    options: &WindowOptions,
) -> Result<Vec<Vec<Wanted>>, Failure> {
    Ok(vec![vec![Scorer::wanted(planned, experts, options).map_err(eval_failure)?]])
}

/// The context of a model whose routing a cache takes part in.
pub fn of_loop(
    planned: &Model,
    experts: &Experts,
    options: &WindowOptions,
) -> Result<Vec<Vec<Wanted>>, Failure> {
    Ok(vec![vec![Scorer::wanted_one_by_one(planned, experts, options).map_err(eval_failure)?]])
}

/// Those of the model that is tried with cuts or measured against itself, of whose texts `rows` tokens are scored.
pub fn of_several(
    planned: &Model,
    args: &EvalArgs,
    experts: &Experts,
    (options, rows, room): (&WindowOptions, u64, u64),
) -> Result<Vec<Vec<Wanted>>, Failure> {
    let mut all = WhatIf::contexts(planned, experts, options, rows, room).map_err(eval_failure)?;
    if args.noise.is_some() {
        all.push(Scorer::wanted(planned, experts, options).map_err(eval_failure)?);
    }
    Ok(vec![all])
}

/// What the base takes, which is there at the same time as the model.
pub fn of_base(
    args: &EvalArgs,
    base: &MoeModel,
    options: &WindowOptions,
    (console, interrupt): (Console, Interrupt),
) -> Result<Demand, Failure> {
    if args.llama.no_memory_check {
        return Ok(Demand::default());
    }
    let placed = args.llama.place(base, false, console)?;
    let mut contexts = |planned: &Model| of_one(planned, &base.experts, options);
    let (backend, path) = (placed.backend, placed.path);
    let demand = args.llama.demand(backend, path, &placed.placement, &mut contexts, (console, interrupt))?;
    Ok(demand.unwrap_or_default())
}
