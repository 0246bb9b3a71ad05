//! `moeslice refine`: a plan made better by trial, before anything is cut.

use super::eval::{eval_failure, room};
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{Console, print};
use crate::evaluate::{self, EvalCorpus, Exchange, Losses, Refined, TextOptions, WhatIf};
use crate::flags::eval_texts::EvalTextFlags;
use crate::flags::llama::LlamaFlags;
use crate::flags::selection::{KEEP_HELP, SelectionFlags, open_usage};
use crate::llama::Model;
use crate::moe::{KeptExperts, MoeModel, ShardPolicy};
use crate::plan::{KeepTarget, Plan};
use crate::progress::{Interrupt, Unit, stage};
use crate::score;
use crate::sys::catch_interrupts;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Experts on either side of the cut that are tried against each other.
const DEPTH: usize = 8;

/// Arguments of `refine`.
#[derive(Args, Clone, Debug)]
pub struct RefineArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// The usage file to begin with, or an imatrix of llama-imatrix
    #[arg(long, value_name = "U.json")]
    pub usage: PathBuf,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true)]
    pub keep: KeepTarget,
    /// Minutes that the search takes, at most
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = minutes)]
    pub minutes: f64,
    /// The plan to write
    #[arg(short, long, value_name = "PLAN.json")]
    pub output: PathBuf,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub choose: SelectionFlags,
    #[command(flatten)]
    pub texts: EvalTextFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: Option<f64> = text.parse().ok();
    minutes
        .filter(|minutes| *minutes > 0.0 && *minutes < 1e6)
        .ok_or_else(|| "expected a number of minutes above 0".to_owned())
}

/// Runs `refine`.
pub fn refine(args: &RefineArgs, console: Console) -> Result<(), Failure> {
    let model = MoeModel::open(&args.model).map_err(Failure::input)?;
    let usage = open_usage(&args.usage, &model, console)?;
    let selection = args.choose.selection().resolved(&usage)?;
    selection.check_early(&model, &args.keep, console)?;
    let mut plan = selection.plan(&model, &usage, &args.keep, ShardPolicy::Keep)?;
    let checkpoint = checkpoint_of(&args.output);
    let mut outputs = OutputFiles::default();
    outputs.add_small(&args.output, args.force)?;
    outputs.add_small(&checkpoint, true)?;
    let corpora = args.texts.read(&model, console)?;
    outputs.check_inputs(model.files().chain([args.usage.as_path()]).chain(args.texts.inputs(&corpora)))?;

    let interrupt = catch_interrupts();
    let options = args.llama.windows(&model.file, interrupt);
    let mut contexts = |planned: &Model| {
        // How many predictions there are to keep is not known yet: what is kept needs one context.
        let contexts = WhatIf::contexts(planned, model.chosen(), &options, 0, u64::MAX);
        Ok(vec![contexts.map_err(eval_failure)?])
    };
    let loaded = args.llama.load_model(&model, false, (console, interrupt), &mut contexts)?;
    let text_options = TextOptions::of(&options, args.texts.chunks, args.texts.parse_special);
    let (of_other, of_search): (Vec<_>, Vec<_>) =
        corpora.into_iter().partition(|corpus| args.texts.is_other(&corpus.name));
    let (search, unseen) =
        evaluate::search_parts(&loaded.model, &of_search, &usage, text_options).map_err(eval_failure)?;
    let others = evaluate::windows(&loaded.model, &of_other, None, text_options).map_err(eval_failure)?;
    let n_search = unseen.len();
    let tested: Vec<EvalCorpus> = unseen.into_iter().chain(others).map(|(corpus, _)| corpus).collect();
    let search = [search];

    let experts = model.chosen();
    let scores = score::scores(&usage, selection.score(), selection.blend()).map_err(Failure::input)?;
    let margins = |so_far: &Refined| {
        let is_settled = |layer, id| {
            let is_of = |one: &Exchange| one.layer == layer && [one.leaves, one.enters].contains(&id);
            selection.is_pinned(layer, id) || so_far.accepted.iter().any(is_of)
        };
        evaluate::margins(experts, &scores, &so_far.keep, &is_settled, DEPTH)
    };
    let mut what_if = stage(&mut *console.progress(), "whole model", Unit::Tokens, |progress| {
        WhatIf::new(&loaded.model, experts, &options, &search, room(), progress)
    })
    .map_err(eval_failure)?;
    let start = plan.keep.clone();
    let mut kept_steps = Ok(());
    let refined = stage(&mut *console.progress(), "refining", Unit::Percent, |progress| {
        let deadline = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
        let mut accepted = |so_far: &Refined, exchanges: usize| {
            console.remark(&step(so_far, exchanges));
            if kept_steps.is_ok() {
                kept_steps =
                    write_small(&checkpoint, as_plan(&plan, so_far).to_json().as_bytes(), true, console);
            }
            Ok(())
        };
        evaluate::refine(&mut what_if, &start, &margins, deadline, &mut accepted, progress)
    })
    .map_err(eval_failure)?;
    drop(what_if);
    kept_steps?;
    console.remark(&format!(
        "{} exchanges accepted in {} trials, as long as {:.0} evaluations of the whole text; mean KL on it {:.4} → {:.4}{}",
        refined.accepted.len(),
        refined.tried,
        refined.evaluations,
        refined.kl_before,
        refined.kl,
        if refined.exhausted { "; no exchange is left to try" } else { "" }
    ));
    let mut is_better = true;
    if !refined.accepted.is_empty() && !interrupt.is_set() {
        let plans = (&start, &refined.keep);
        let compared = compare(args, &model, &loaded.model, &tested, n_search, plans, interrupt, console);
        // Whoever interrupts the comparison wants the best plan so far.
        is_better = match compared {
            Err(Failure::Interrupted) => true,
            compared => compared?,
        };
    }
    let stopped = interrupt.is_set();
    if !is_better {
        console
            .remark("the refined plan is not better on text that the search never saw: the original is kept");
    } else if !refined.accepted.is_empty() {
        plan = as_plan(&plan, &refined);
    }
    write_small(&args.output, plan.to_json().as_bytes(), args.force, console)?;
    let _ = std::fs::remove_file(&checkpoint);
    if stopped {
        let output = args.output.display();
        return Err(Failure::Stopped(format!(
            "interrupted; {output} holds the best plan so far, not compared on unseen text"
        )));
    }
    console.remark(&format!("wrote {}", args.output.display()));
    Ok(())
}

/// Measures both plans on text that the search never saw, prints what came out, and says whether the refined one is better.
#[allow(clippy::too_many_arguments)]
fn compare(
    args: &RefineArgs,
    model: &MoeModel,
    loaded: &Model,
    tested: &[EvalCorpus],
    n_search: usize,
    (start, refined): (&KeptExperts, &KeptExperts),
    interrupt: Interrupt,
    console: Console,
) -> Result<bool, Failure> {
    let options = args.llama.windows(&model.file, interrupt);
    let mut what_if = stage(&mut *console.progress(), "comparing", Unit::Tokens, |progress| {
        WhatIf::new(loaded, model.chosen(), &options, tested, room(), progress)
    })
    .map_err(eval_failure)?;
    let mut cut = |keep: &KeptExperts| {
        stage(&mut *console.progress(), "comparing", Unit::Tokens, |progress| what_if.cut(keep, progress))
            .map_err(eval_failure)
    };
    let (before, after) = (cut(start)?, cut(refined)?);
    let unseen: Vec<usize> = (0..n_search).collect();
    let mut text = format!("{:<24}{:>20}{:>20}\n", "unseen text", "original PPL (KL)", "refined PPL (KL)");
    let mut line = |name: &str, places: &[usize]| {
        let cell = |losses: &Losses| {
            losses.of(places).map_or_else(String::new, |figures| {
                format!("{:.3} ({:.4})", figures.ppl, figures.kl_mean().unwrap_or(f64::NAN))
            })
        };
        text += &format!("{name:<24}{:>20}{:>20}\n", cell(&before), cell(&after));
    };
    for (at, corpus) in tested.iter().enumerate() {
        line(&corpus.name, &[at]);
    }
    if n_search > 1 {
        line("together", &unseen);
    }
    if !console.quiet {
        print(&text)?;
    }
    let kl = |losses: &Losses| losses.of(&unseen).and_then(|figures| figures.kl_mean());
    Ok(matches!((kl(&before), kl(&after)), (Some(before), Some(after)) if after < before))
}

/// What was accepted last, for people.
fn step(refined: &Refined, exchanges: usize) -> String {
    let exchange = match refined.accepted.last() {
        Some(last) if exchanges == 1 => {
            format!("in layer {} expert {} stays in place of {}", last.layer, last.enters, last.leaves)
        }
        _ => format!("{exchanges} exchanges at once"),
    };
    format!("trial {}: {exchange}, mean KL {:.4}", refined.tried, refined.kl)
}

/// The plan with the experts that the search found.
fn as_plan(plan: &Plan, refined: &Refined) -> Plan {
    let score = plan.score.as_deref().unwrap_or("plan");
    let name = if score.ends_with("+refined") { score.to_owned() } else { format!("{score}+refined") };
    Plan { keep: refined.keep.clone(), score: Some(name), ties: None, ..plan.clone() }
}

/// Where each accepted step is kept.
fn checkpoint_of(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".checkpoint");
    output.with_file_name(name)
}
