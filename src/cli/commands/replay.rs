//! `moeslice replay`: a trace through caches of experts.

use crate::cache::PolicyKind;
use crate::console::failure::Failure;
use crate::console::output_files::OutputFiles;
use crate::console::{Console, print_json, print_styled};
use crate::flags::cache_aware::{CacheAwareFlags, number, policy_help};
use crate::flags::page;
use crate::moe::MoeModel;
use crate::page::ReplayPage;
use crate::progress::{Interrupt, Unit};
use crate::replay::{self, CacheAware, Capacity, Guard, PrefetchPlace, PrefetchPlan};
use crate::replay::{ReplayError, ReplayOptions, RunSpec, TransferModel};
use crate::report;
use crate::sys::{self, catch_interrupts};
use crate::trace::{self, OpenTrace, TraceMeta, TraceReader};
use crate::units::parse_bytes;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The trace: an Arrow stream of `moeslice trace` (whole, or its .part), JSONL or CSV
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// The model of a trace that does not tell the bytes of its experts
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Caches of so many experts of each layer
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub capacity: Vec<u32>,
    /// Caches of so many bytes for all layers together, such as 8GiB
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = bytes)]
    pub memory: Vec<u64>,
    /// What is evicted
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', default_value = "lru,slru,lfu,static,belady", help = policy_help())]
    pub policy: Vec<PolicyKind>,
    /// Begin each session with what the one before it left in the cache
    #[arg(long)]
    pub carry: bool,
    /// Tokens after which a cache that began empty counts as steady
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub warmup: u64,
    /// Request the tokens of prefill one by one, as in decode, and not a ubatch at once
    #[arg(long)]
    pub one_by_one: bool,
    /// Also show the exact curve of LRU over all capacities
    #[arg(long)]
    pub curve: bool,
    /// Show the choices for --memory side by side: cut, layers in host memory, expert cache
    #[arg(long, requires = "memory", conflicts_with_all = ["capacity", "curve", "lambda", "prefetch"])]
    pub advise: bool,
    /// Bytes a second between the memories, such as 25GB: with it, tokens/s are modelled
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub bandwidth: Option<u64>,
    /// Microseconds that each expert costs beside its bytes, for the same model
    #[arg(long, value_name = "µs", default_value_t = 10.0, requires = "bandwidth", value_parser = number)]
    pub latency: f64,
    /// Fetch N experts ahead for the next layer: "staging:N" into a buffer of their own, "tail:N" to where lru evicts first, "evicting:N" into lru like others
    #[arg(long, value_name = "PLACE:N", value_parser = prefetch)]
    pub prefetch: Option<PrefetchPlan>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// Also write a page with the curves, in one file
    #[arg(long, value_name = "R.html", conflicts_with = "advise")]
    pub report: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "report")]
    pub force: bool,
    #[command(flatten)]
    pub aware: CacheAwareFlags,
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(str::to_owned)
}

fn prefetch(text: &str) -> Result<PrefetchPlan, String> {
    let wrong = || "expected staging:N, tail:N or evicting:N".to_owned();
    let (place, experts) = text.split_once(':').ok_or_else(wrong)?;
    let place = [PrefetchPlace::Staging, PrefetchPlace::Tail, PrefetchPlace::Evicting]
        .into_iter()
        .find(|known| known.name() == place)
        .ok_or_else(wrong)?;
    let experts = experts.parse().ok().filter(|experts| (1..=1024).contains(experts)).ok_or_else(wrong)?;
    Ok(PrefetchPlan { place, experts })
}

/// Runs `replay`.
pub fn replay(args: &ReplayArgs, console: Console) -> Result<(), Failure> {
    let mut trace = trace::open(&args.trace).map_err(Failure::input)?;
    let model = args.model.as_ref().map(|path| MoeModel::open(path)).transpose().map_err(Failure::input)?;
    if let Some(model) = &model {
        let taken = trace.meta_mut().take_bytes(model.path(), &model.experts);
        taken.map_err(Failure::input)?;
    }
    if let Some(report) = &args.report {
        let mut outputs = OutputFiles::default();
        outputs.add_small(report, args.force)?;
        let files = model.iter().flat_map(MoeModel::files);
        outputs.check_inputs(files.chain([args.trace.as_path()]))?;
    }
    let interrupt = catch_interrupts();
    if args.advise {
        return advise(args, &mut trace, model.as_ref(), (console, interrupt));
    }
    let specs = without_unequal(specs(args)?, args, trace.meta(), console);
    let mut said = Vec::new();
    for spec in &specs {
        if let Some(guard) = Guard::of(spec, trace.meta()).filter(|guard| !said.contains(guard)) {
            console.remark(&guard.to_string());
            said.push(guard);
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = ReplayOptions {
        warmup: args.warmup,
        carry: args.carry,
        one_by_one: args.one_by_one,
        curve: args.curve,
        threads,
    };
    let transfers = args
        .bandwidth
        .map(|bandwidth| TransferModel { bandwidth: bandwidth as f64, latency: args.latency * 1e-6 });
    if transfers.is_some() && !trace.meta().has_bytes() {
        return Err(replay_failure(ReplayError::NoBytes));
    }
    let done =
        watched(console, |tell| replay::replay(&mut trace, &specs, options, transfers, interrupt, tell));
    let done = done.map_err(replay_failure)?.ok_or(Failure::Interrupted)?;
    done.remarks.iter().for_each(|text| console.remark(text));
    if args.json {
        print_json(&done)?;
    } else {
        print_styled(&report::replay_text(&done, &console.style()))?;
    }
    let Some(path) = &args.report else { return Ok(()) };
    let (file, command) = (sys::name_of(&args.trace), page::command_line());
    let page = ReplayPage { replay: &done, trace: trace.meta(), file: &file, transfers, command: &command };
    page::write(path, &page.render(), args.force, console)
}

/// All caches that the flags ask for.
fn specs(args: &ReplayArgs) -> Result<Vec<RunSpec>, Failure> {
    let capacities: Vec<Capacity> = (args.capacity.iter().map(|n| Capacity::Experts(*n)))
        .chain(args.memory.iter().map(|bytes| Capacity::Bytes(*bytes)))
        .collect();
    if capacities.is_empty() && !args.curve {
        return Err(Failure::arguments(
            "how large the cache is has to be said: --capacity N for experts of each layer, --memory SIZE for all together, or --curve for every capacity of lru",
        ));
    }
    let aware: Vec<Option<CacheAware>> = match args.aware.lambda.as_slice() {
        [] => vec![None],
        lambdas => lambdas.iter().map(|lambda| Some(args.aware.with(*lambda))).collect(),
    };
    let mut specs = Vec::new();
    for capacity in capacities {
        for policy in &args.policy {
            for cache_aware in &aware {
                // What comes depends on the cache then, which an optimum cannot know; it stands beside the others at 0.
                let unknown = policy.is_optimum() && cache_aware.is_some_and(|aware| aware.lambda > 0.0);
                if unknown && args.policy.len() > 1 && args.aware.lambda.contains(&0.0) {
                    continue;
                }
                let prefetch = args.prefetch.filter(|_| !(policy.is_optimum() && args.policy.len() > 1));
                specs.push(RunSpec { policy: *policy, capacity, cache_aware: *cache_aware, prefetch });
            }
        }
    }
    Ok(specs)
}

/// Leaves an optimum out where it cannot be told, unless it is all that was asked for.
fn without_unequal(
    mut specs: Vec<RunSpec>,
    args: &ReplayArgs,
    meta: &TraceMeta,
    console: Console,
) -> Vec<RunSpec> {
    let mut sizes = meta.layers.iter().map(|layer| layer.bytes_per_expert());
    let first = sizes.next();
    if args.policy.iter().all(|policy| policy.is_optimum()) || sizes.all(|size| Some(size) == first) {
        return specs;
    }
    let before = specs.len();
    specs.retain(|spec| !(spec.policy.is_optimum() && matches!(spec.capacity, Capacity::Bytes(_))));
    if specs.len() < before {
        console.remark("experts differ in size between the layers: the optimum of --memory cannot be told, and is left out");
    }
    specs
}

fn advise(
    args: &ReplayArgs,
    trace: &mut OpenTrace,
    model: Option<&MoeModel>,
    (console, interrupt): (Console, Interrupt),
) -> Result<(), Failure> {
    let [budget] = args.memory.as_slice() else {
        return Err(Failure::arguments("--advise takes one --memory"));
    };
    let possible = model.map(|model| model.experts.possible_counts());
    let file = trace.meta().model.as_ref().map(|model| model.file.clone());
    let advice =
        watched(console, |tell| replay::advise(trace, *budget, possible.as_deref(), interrupt, tell));
    let advice = advice.map_err(replay_failure)?.ok_or(Failure::Interrupted)?;
    advice.remarks.iter().for_each(|text| console.remark(text));
    let advice = report::AdviceWithFlags::new(advice, file.as_deref());
    if args.json {
        return Ok(print_json(&advice)?);
    }
    Ok(print_styled(&advice.text(&console.style()))?)
}

/// Does the work while a bar counts tokens. How many there are is not known before the end.
fn watched<T>(console: Console, work: impl FnOnce(&mut dyn FnMut(u64)) -> T) -> T {
    let mut progress = console.progress();
    progress.begin("replaying", Unit::Tokens);
    let result = work(&mut |tokens| progress.update(tokens, tokens));
    progress.end();
    result
}

/// Numbers that do not go with the trace are a matter of the arguments, all else of the trace.
pub(super) fn replay_failure(error: ReplayError) -> Failure {
    match error {
        error @ (ReplayError::Trace(_)
        | ReplayError::NoBytes
        | ReplayError::NoValues
        | ReplayError::Empty
        | ReplayError::TooShort { .. }
        | ReplayError::LargeUbatch { .. }) => Failure::input(error),
        error => Failure::Arguments(error.into()),
    }
}
