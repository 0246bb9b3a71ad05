//! `eval --cache-policy`: what the model is worth while a cache of experts takes part in the routing.

use super::super::replay::{policy_help, replay_failure};
use super::failure::eval_failure;
use super::session::{Session, room};
use crate::cache::PolicyKind;
use crate::console::failure::Failure;
use crate::console::{print, print_styled};
use crate::evaluate::{
    self, CacheCounts, CacheLoop, CacheRouting, EvalCorpus, EvalRow, Evaluation, LoopCounts, LoopError,
    Reference, Scorer, StoredRows,
};
use crate::flags::cache_aware::CacheAwareFlags;
use crate::moe::MoeModel;
use crate::progress::{Unit, stage};
use crate::replay::{CacheAware, Capacity, ReplayOptions, RunSpec};
use crate::report::RoutingTable;
use crate::units::ByteCount;
use clap::Args;

/// The values of `--lambda` when none is given.
const LAMBDAS: [f64; 4] = [0.0, 0.1, 0.3, 0.5];

/// A cache that takes part in the routing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "A cache in the routing")]
pub struct LoopFlags {
    /// Let a simulated cache of experts take part in the routing: what that costs, and how many experts it spares to fetch
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', requires = "capacity", long_help = loop_help(),
          conflicts_with_all = ["base", "usage", "plan", "noise", "report"])]
    pub cache_policy: Vec<PolicyKind>,
    /// Experts of each layer that the cache holds
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "cache_policy", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub capacity: Vec<u32>,
    /// Begin each window with what the one before it left in the cache
    #[arg(long, requires = "cache_policy")]
    pub carry: bool,
    /// Tokens after which a cache that began empty counts as steady
    #[arg(long, value_name = "TOKENS", default_value_t = 128, requires = "cache_policy")]
    pub warmup: u64,
    #[command(flatten)]
    pub aware: CacheAwareFlags,
}

fn loop_help() -> String {
    format!(
        "Let a simulated cache of experts take part in the routing: what that costs, and how many experts it spares to fetch. {}",
        policy_help()
    )
}

impl LoopFlags {
    /// Whether a cache takes part.
    pub fn is_given(&self) -> bool {
        !self.cache_policy.is_empty()
    }

    /// Checks, before a model is loaded, that the caches go with it.
    pub fn check(&self, model: &MoeModel) -> Result<(), Failure> {
        if !self.is_given() && !self.aware.lambda.is_empty() {
            return Err(Failure::arguments(
                "--lambda says how much a cache counts: --cache-policy names one",
            ));
        }
        let open = CacheLoop::open(&model.experts, Vec::new(), &self.specs(), self.options());
        open.map(drop).map_err(loop_failure)
    }

    /// Each cache with each `λ`.
    fn specs(&self) -> Vec<RunSpec> {
        let lambdas = if self.aware.lambda.is_empty() { &LAMBDAS } else { self.aware.lambda.as_slice() };
        let mut specs = Vec::new();
        for &policy in &self.cache_policy {
            for &capacity in &self.capacity {
                let spec = RunSpec::plain(policy, Capacity::Experts(capacity));
                let with = |&lambda: &f64| RunSpec { cache_aware: Some(self.aware.with(lambda)), ..spec };
                // What comes depends on the cache then, which an optimum cannot know; it stands beside the others at 0.
                let alone = self.cache_policy.len() == 1 || !lambdas.contains(&0.0);
                specs.extend(
                    lambdas
                        .iter()
                        .filter(|&&lambda| lambda == 0.0 || alone || !policy.is_optimum())
                        .map(with),
                );
            }
        }
        specs
    }

    fn options(&self) -> ReplayOptions {
        ReplayOptions { warmup: self.warmup, carry: self.carry, one_by_one: true, ..ReplayOptions::new(1) }
    }

    fn routing(&self, spec: &RunSpec, closed: &LoopCounts, open: &LoopCounts) -> CacheRouting {
        let aware = spec.cache_aware.unwrap_or(CacheAware { lambda: 0.0, ..self.aware.with(0.0) });
        let capacity = match spec.capacity {
            Capacity::Experts(n) | Capacity::Slots(n) => n,
            Capacity::Bytes(_) => 0, // never asked for here
        };
        CacheRouting {
            policy: spec.policy.to_string(),
            capacity,
            lambda: aware.lambda,
            top: aware.top,
            delta: aware.delta.to_string(),
            carry: self.carry,
            closed: counts(closed),
            open: counts(open),
        }
    }
}

fn counts(counts: &LoopCounts) -> CacheCounts {
    CacheCounts {
        tokens: counts.all.tokens,
        requests: counts.all.requests,
        misses: counts.all.misses,
        bytes: counts.all.bytes,
        steady_requests: counts.steady.requests,
        steady_misses: counts.steady.misses,
    }
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
