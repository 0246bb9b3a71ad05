//! The cuts that are tried.

use super::args::EvalArgs;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::flags::selection::{Selection, SelectionFlags, corpus_lines, open_usage};
use crate::moe::{MoeModel, ShardPolicy};
use crate::plan::{self, Coverage, Plan, PlanSource};
use crate::score::Score;
use crate::usage::Usage;

/// A cut that is tried.
pub struct Candidate {
    /// Experts of a layer.
    pub k: u32,
    /// Bytes of all files that it would take.
    pub bytes: u64,
    /// What the experts were ranked by.
    pub score: Option<String>,
    /// The plan file.
    pub plan: Option<String>,
    /// What the kept experts cover of the routing.
    pub coverage: Option<Coverage>,
    /// The experts that stay, and what chose them.
    pub selected: Plan,
}

/// The cuts, and the usage that they were chosen by.
pub struct Candidates {
    /// From many experts to few.
    pub list: Vec<Candidate>,
    /// The usage.
    pub usage: Option<Usage>,
}

/// All cuts that the flags name.
pub fn of(args: &EvalArgs, model: &MoeModel, console: Console) -> Result<Candidates, Failure> {
    let mut candidates = Candidates { list: Vec::new(), usage: None };
    if let Some(path) = &args.usage {
        let usage = open_usage(path, model, console)?;
        let scores: Vec<Score> = if args.score.is_empty() {
            vec![Score::best_of(&usage)]
        } else {
            args.score.iter().map(|name| name.parse().map_err(Failure::input)).collect::<Result<_, _>>()?
        };
        for score in scores {
            candidates.list.extend(ranked(args, model, &usage, score)?);
        }
        candidates.usage = Some(usage);
    }
    for path in &args.plan {
        let mut plan = Plan::read(path).map_err(Failure::input)?;
        plan.keep.retain(|layer| !model.passes_over(layer));
        let model_match =
            plan.check(model.chosen(), &model.identity, path, model.path()).map_err(Failure::input)?;
        if let Some(text) = model_match.remark() {
            console.remark(text);
        }
        let coverage = candidates
            .usage
            .as_ref()
            .and_then(|usage| plan::coverage(usage, &plan.keep))
            .map(|found| found.all);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        candidates.list.push(Candidate {
            k: plan.k,
            bytes: bytes(model, &plan)?,
            score: plan.score.clone(),
            plan: Some(name),
            coverage,
            selected: plan,
        });
    }
    candidates.list.sort_by_key(|candidate| std::cmp::Reverse(candidate.k));
    Ok(candidates)
}

/// How the flags choose experts by this score.
pub fn selection(args: &EvalArgs, score: Score) -> Selection {
    SelectionFlags {
        score: Some(score),
        always_keep: args.always_keep.clone(),
        protect_super: args.protect_super,
        blend: args.blend.clone(),
    }
    .selection()
}

fn ranked(args: &EvalArgs, model: &MoeModel, usage: &Usage, score: Score) -> Result<Vec<Candidate>, Failure> {
    let selection = selection(args, score).resolved(usage)?;
    let planner = selection.planner(model, usage)?;
    let size = |k: u32| Ok(selection.file_bytes(model, usage, &k.to_string(), k, ShardPolicy::Keep)?);
    let source = PlanSource::new(model.path(), &model.identity);
    let mut found: Vec<Candidate> = Vec::new();
    for keep in &args.keep {
        let plan = planner.plan(keep, &size, source.clone()).map_err(Failure::input)?;
        if found.iter().any(|other| other.k == plan.k) {
            continue;
        }
        found.push(Candidate {
            k: plan.k,
            bytes: bytes(model, &plan)?,
            score: Some(score.to_string()),
            plan: None,
            coverage: Some(planner.coverage(&plan.keep).all),
            selected: plan,
        });
    }
    Ok(found)
}

/// Bytes of the file that `prune` writes by this plan.
fn bytes(model: &MoeModel, plan: &Plan) -> Result<u64, Failure> {
    let corpora = corpus_lines(plan.corpora.iter().map(|one| (one.name.as_str(), one.sha256.clone())));
    let target = plan.target.clone().unwrap_or_else(|| plan.k.to_string());
    let provenance = model.provenance(plan.score.as_deref().unwrap_or("plan"), &target, corpora);
    model.cut_bytes(plan.k, &provenance, ShardPolicy::Keep).map_err(Failure::input)
}
