//! `moeslice replay`: a trace through caches of experts.

use crate::console::failure::Failure;
use crate::console::output_files::OutputFiles;
use crate::console::{Console, print_json, print_styled};
use crate::flags::cache_aware::number;
use crate::flags::caches::{self, CachesFlags, replay_failure};
use crate::flags::page;
use crate::moe::MoeModel;
use crate::page::ReplayPage;
use crate::progress::{Interrupt, Unit};
use crate::replay::{self, Guard, ReplayError, ReplayOptions, TransferModel};
use crate::report;
use crate::sys::{self, catch_interrupts};
use crate::trace::{self, OpenTrace, TraceReader};
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
    #[command(flatten)]
    pub caches: CachesFlags,
    /// Begin each session with what the one before it left in the cache
    #[arg(long)]
    pub carry: bool,
    /// Request the tokens of prefill one by one, as in decode, and not a ubatch at once
    #[arg(long)]
    pub one_by_one: bool,
    /// Also show the exact curve of LRU over all capacities
    #[arg(long)]
    pub curve: bool,
    /// Show the choices for --memory side by side: cut, layers in host memory, expert cache
    #[arg(long, requires = "memory", conflicts_with_all = ["capacity", "curve", "lambda", "top_j", "delta", "prefetch", "policy", "carry", "warmup", "one_by_one", "bandwidth", "latency"])]
    pub advise: bool,
    /// Bytes a second between the memories, such as 25GB: with it, tokens/s are modelled
    #[arg(long, value_name = "SIZE", value_parser = caches::bytes)]
    pub bandwidth: Option<u64>,
    /// Microseconds that each expert costs beside its bytes, for the same model
    #[arg(long, value_name = "µs", default_value_t = 10.0, requires = "bandwidth", value_parser = number)]
    pub latency: f64,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// Also write a page with the curves, in one file
    #[arg(long, value_name = "R.html", conflicts_with = "advise")]
    pub report: Option<PathBuf>,
    /// Replace an existing page
    #[arg(long, requires = "report")]
    pub force: bool,
}

/// Runs `replay`.
pub fn replay(args: &ReplayArgs, console: Console) -> Result<(), Failure> {
    let mut trace = trace::open(&args.trace).map_err(Failure::input)?;
    let model = args.model.as_ref().map(|path| MoeModel::open(path)).transpose().map_err(Failure::input)?;
    if let Some(model) = &model {
        let taken = trace.meta_mut().take_bytes(model.path(), &model.experts);
        taken.map_err(Failure::input)?;
        if let Some(text) = trace.meta().model_remark(model.path(), &model.identity) {
            console.remark(&text);
        }
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
    let specs = args.caches.specs(trace.meta(), args.curve, console)?;
    let mut said = Vec::new();
    for spec in &specs {
        if let Some(guard) = Guard::of(spec, trace.meta()).filter(|guard| !said.contains(guard)) {
            console.remark(&guard.to_string());
            said.push(guard);
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = ReplayOptions {
        warmup: args.caches.warmup,
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
    // Said of a trace that is too short for the question, too: why it is short.
    trace.remark().into_iter().for_each(|text| console.remark(text));
    let done = done.map_err(replay_failure)?.ok_or(Failure::Interrupted)?;
    if args.caches.prefetch.is_some() && !done.has_single_tokens() {
        console.remark("the trace has no tokens that were written, and for a ubatch nothing is fetched ahead; --one-by-one requests its tokens one by one");
    }
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

fn advise(
    args: &ReplayArgs,
    trace: &mut OpenTrace,
    model: Option<&MoeModel>,
    (console, interrupt): (Console, Interrupt),
) -> Result<(), Failure> {
    let [budget] = args.caches.memory.as_slice() else {
        return Err(Failure::arguments("--advise takes one --memory"));
    };
    let possible = model.map(|model| model.experts.possible_counts());
    let given = model.map(|model| model.path().to_string_lossy().into_owned());
    let file = given.or_else(|| trace.meta().model.as_ref().map(|model| model.file.clone()));
    let advice =
        watched(console, |tell| replay::advise(trace, *budget, possible.as_deref(), interrupt, tell));
    trace.remark().into_iter().for_each(|text| console.remark(text));
    let advice = advice.map_err(replay_failure)?.ok_or(Failure::Interrupted)?;
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
