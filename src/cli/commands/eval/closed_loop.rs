//! `eval --cache-policy`: what the model is worth while a cache of experts takes part in the routing.

use super::super::replay::replay_failure;
use super::failure::eval_failure;
use super::session::{Session, room};
use crate::console::failure::Failure;
use crate::console::{print, print_styled};
use crate::evaluate::{
    self, CacheLoop, EvalCorpus, EvalRow, Evaluation, LoopError, Reference, Scorer, StoredRows,
};
use crate::flags::cache_loop::LoopFlags;
use crate::moe::MoeModel;
use crate::progress::{Unit, stage};
use crate::report::RoutingTable;
use crate::units::ByteCount;

/// Checks, before a model is loaded, that the caches go with it.
pub fn check(flags: &LoopFlags, model: &MoeModel) -> Result<(), Failure> {
    if !flags.is_given() {
        let without = "--lambda says how much a cache counts: --cache-policy names one";
        return if flags.aware.lambda.is_empty() { Ok(()) } else { Err(Failure::arguments(without)) };
    }
    let open = CacheLoop::open(&model.experts, Vec::new(), &flags.specs(), flags.options());
    open.map(drop).map_err(loop_failure)
}

/// Measures the plain routing, and then each cache with each `λ`; shows each row as it comes.
pub fn measure(session: &Session<'_>, flags: &LoopFlags, evaluation: &mut Evaluation) -> Result<(), Failure> {
    let specs = flags.specs();
    let (experts, options, corpora) = (&session.model.experts, flags.options(), &session.corpora);
    let of_corpus = |corpus: &EvalCorpus| corpus.windows.iter().map(|w| w.tokens.len() as u32).collect();
    let windows: Vec<u32> = corpora.iter().flat_map(|corpus| -> Vec<u32> { of_corpus(corpus) }).collect();
    let mut open = CacheLoop::open(experts, windows.clone(), &specs, options).map_err(loop_failure)?;
    let model = &session.loaded.model;
    let mut scorer = Scorer::one_by_one(model, experts, &session.options).map_err(eval_failure)?;
    let rows = corpora.iter().map(EvalCorpus::n_scored).sum();
    let (needed, room) = (StoredRows::bytes(scorer.n_vocab(), rows), room());
    if needed > room {
        return Err(Failure::running(anyhow::anyhow!(
            "the predictions of the plain routing take {}, and temporary files may take {} (half of what is free): measure \
             less text (--chunks), or let TMPDIR name a larger folder",
            ByteCount(needed),
            ByteCount(room)
        )));
    }
    let mut stored = StoredRows::new(scorer.n_vocab(), rows).map_err(eval_failure)?;
    let plain = stage(&mut *session.console.progress(), "plain routing", Unit::Tokens, |progress| {
        evaluate::measure_and_keep(&mut scorer, corpora, &mut open, &mut stored, progress)
    });
    let plain = session.row(&plain.map_err(eval_failure)?, None)?;
    let open = open.finish().map_err(loop_failure)?;
    let table = RoutingTable::new(specs.iter().map(|spec| spec.policy.name()), session.console.style());
    let json = session.args.json;
    if !json {
        print_styled(&table.header())?;
        print(&table.row(&plain))?;
    }
    let mut reference = Reference::Stored(stored);
    evaluation.rows.push(plain.clone());
    for (at, (spec, open)) in specs.iter().zip(&open).enumerate() {
        let row = match spec.cache_aware.filter(|aware| aware.lambda > 0.0) {
            // The cache changes nothing: the loop has nothing to close.
            None => EvalRow { routing: Some(flags.routing(spec, open, open)), ..plain.clone() },
            Some(aware) => {
                let mut closed =
                    CacheLoop::closed(experts, windows.clone(), *spec, options).map_err(loop_failure)?;
                let name = format!("{} of {}, {}, λ = {}", at + 1, specs.len(), spec.policy, aware.lambda);
                let losses = stage(&mut *session.console.progress(), &name, Unit::Tokens, |progress| {
                    let progress = &mut super::session::Unnamed(progress);
                    evaluate::measure(&mut scorer, corpora, Some(&mut reference), &mut closed, progress)
                });
                let row = session.row(&losses.map_err(eval_failure)?, None)?;
                let closed = closed.finish().map_err(loop_failure)?;
                EvalRow { routing: closed.first().map(|closed| flags.routing(spec, closed, open)), ..row }
            }
        };
        if !json {
            print(&table.row(&row))?;
        }
        evaluation.rows.push(row);
    }
    evaluation.remarks.push(
        "missed: share of the requests while the cache chose; replayed: the same where the model does not see what it chose \
         (the open loop of `replay`)"
            .into(),
    );
    Ok(())
}

fn loop_failure(error: LoopError) -> Failure {
    match error {
        LoopError::Replay(error) => replay_failure(error),
        error @ LoopError::Impossible { .. } => Failure::input(error),
        error => Failure::running(error),
    }
}
