//! Many caches, one read of the trace, all processors.

use super::result::Replay;
use super::{
    Chunk, LruCurve, ReplayError, ReplayOptions, RunSpec, Simulation, Steps, TransferModel, working_set,
};
use crate::progress::Interrupt;
use crate::trace::{Batch, TraceReader};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Chunks that wait for a thread, at most.
const AHEAD: usize = 2;

/// What a thread works on.
enum Work {
    Cache(usize, Box<Simulation>),
    Curve(LruCurve),
}

impl Work {
    fn feed(&mut self, chunk: &Chunk) {
        match self {
            Work::Cache(_, simulation) => simulation.feed(chunk),
            Work::Curve(curve) => curve.feed(chunk),
        }
    }
}

/// Replays a trace through all caches of `specs`. The trace is read once, a few MiB at a time; no more of it is held.
///
/// `tell` hears how many tokens are done.
///
/// # Errors
/// When the trace cannot be read, or a run does not go with it. `None` when the user interrupts.
pub fn replay(
    trace: &mut dyn TraceReader,
    specs: &[RunSpec],
    options: ReplayOptions,
    model: Option<TransferModel>,
    interrupt: Interrupt,
    tell: &mut dyn FnMut(u64),
) -> Result<Option<Replay>, ReplayError> {
    let meta = Arc::new(trace.meta().clone());
    let mut work = Vec::new();
    for (at, spec) in specs.iter().enumerate() {
        work.push(Work::Cache(at, Box::new(Simulation::new(&meta, *spec, options)?)));
    }
    if options.curve {
        work.push(Work::Curve(LruCurve::new(&meta, options.carry)));
    }
    let n = options.threads.clamp(1, work.len().max(1));
    let mut shares: Vec<Vec<Work>> = (0..n).map(|_| Vec::new()).collect();
    work.into_iter().enumerate().for_each(|(at, work)| shares[at % n].push(work));
    let (read, shares) = thread::scope(|scope| {
        let (senders, threads): (Vec<_>, Vec<_>) = shares
            .into_iter()
            .map(|share| {
                let (sender, receiver) = sync_channel(AHEAD);
                (sender, scope.spawn(|| run(share, receiver)))
            })
            .unzip();
        let read = read(trace, options, &senders, interrupt, tell);
        drop(senders);
        let joined = threads.into_iter().flat_map(|thread| {
            // A panic of a thread is ours.
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        (read, joined.collect::<Vec<Work>>())
    });
    let Some(tokens) = read? else { return Ok(None) };
    if tokens == 0 {
        return Err(ReplayError::Empty);
    }
    let mut rows = Vec::new();
    let mut curve = None;
    for work in shares {
        match work {
            Work::Cache(at, simulation) => rows.push((at, simulation.finish(model)?)),
            Work::Curve(done) => curve = Some(done.finish()),
        }
    }
    rows.sort_by_key(|(at, _)| *at);
    Ok(Some(Replay {
        tokens,
        warmup: options.warmup,
        carry: options.carry,
        one_by_one: options.one_by_one,
        n_layer: meta.layers.len(),
        working_set_bytes: working_set(&meta),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        curve,
        remarks: trace.remark().map(str::to_owned).into_iter().collect(),
    }))
}

fn run(mut share: Vec<Work>, chunks: Receiver<Arc<Chunk>>) -> Vec<Work> {
    for chunk in chunks {
        share.iter_mut().for_each(|work| work.feed(&chunk));
    }
    share
}

/// Reads the trace to its end, and hands each part to all threads; gives the tokens.
fn read(
    trace: &mut dyn TraceReader,
    options: ReplayOptions,
    threads: &[SyncSender<Arc<Chunk>>],
    interrupt: Interrupt,
    tell: &mut dyn FnMut(u64),
) -> Result<Option<u64>, ReplayError> {
    let mut steps = Steps::new(trace.meta(), options.one_by_one);
    let mut batch = Batch::default();
    let mut tokens = 0;
    // A thread that has panicked takes nothing; joining it shows why.
    let hand_out = |chunk: Chunk| {
        let chunk = Arc::new(chunk);
        threads.iter().for_each(|thread| drop(thread.send(Arc::clone(&chunk))));
    };
    while trace.read(&mut batch)? {
        if interrupt.is_set() {
            return Ok(None);
        }
        tokens += batch.rows.len() as u64;
        if let Some(chunk) = steps.add(&mut batch)? {
            hand_out(chunk);
        }
        tell(tokens);
    }
    if let Some(chunk) = steps.finish() {
        hand_out(chunk);
    }
    Ok(Some(tokens))
}
