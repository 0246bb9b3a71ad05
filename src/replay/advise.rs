//! What can be done with a model that does not fit: the choices that llama.cpp offers, with what each moves over the bus.

use super::steps::Chunk;
use super::{Capacity, PartResult, ReplayError, ReplayOptions, RunSpec, Simulation, Steps};
use crate::cache::PolicyKind;
use crate::progress::Interrupt;
use crate::trace::{Batch, TraceMeta, TraceReader};
use serde::Serialize;
use std::sync::Arc;

/// Tokens of a ubatch from which on a device computes with experts that lie in host memory: it fetches those that the
/// ubatch needs. Below, the processor computes where they lie.
const OFFLOAD_BATCH: usize = 32;
const MIB: u64 = 1 << 20;

/// The choices for one budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// Bytes that the experts may take on the device.
    pub budget_bytes: u64,
    /// Bytes of all experts.
    pub expert_bytes: u64,
    /// Tokens of the trace.
    pub tokens: u64,
    /// Tokens of a ubatch in the trace, at most: prefill figures hold for this size.
    pub ubatch: usize,
    /// The choices.
    pub rows: Vec<AdviceRow>,
    /// What is to be said of the trace.
    pub remarks: Vec<String>,
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AdviceRow {
    /// What is done.
    #[serde(flatten)]
    pub choice: Choice,
    /// Bytes of experts on the device.
    pub device_bytes: u64,
    /// Bytes of experts that cross the bus for each token that is read; none when the trace has no such tokens to tell.
    pub prefill_bus_bytes: Option<f64>,
    /// The same for each token that is written.
    pub decode_bus_bytes: Option<f64>,
    /// Bytes of experts that the processor reads from its own memory for each token that is written.
    pub decode_host_bytes: f64,
}

/// What is done with the experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "choice", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Choice {
    /// All fit as they are.
    Whole,
    /// Experts are cut out of the file.
    Cut {
        /// Experts that each layer keeps.
        k: u32,
        /// Share of the trace's routing that goes to them, mean over the layers.
        coverage_mean: f64,
        /// In the worst layer.
        coverage_worst: f64,
        /// Which one that is.
        worst_layer: u32,
    },
    /// The experts of the first layers stay in host memory.
    HostLayers {
        /// Layers with experts that stay there.
        n: u32,
        /// What llama.cpp is to be told: blocks, counted from the first.
        blocks: u32,
    },
    /// All stay in host memory, and llama.cpp's own cache holds some on the device.
    Cache {
        /// Its size.
        mib: u64,
        /// Hits a request, of tokens that are written; none when the trace has no such tokens.
        decode_hit_rate: Option<f64>,
    },
}

/// What each layer needs, over the whole trace.
#[derive(Default)]
struct LayerNeeds {
    /// Tokens that went to each expert.
    count: Vec<u64>,
    /// Experts that ubatches of prefill fetched.
    prefill_fetched: u64,
}

/// Tells the choices that hold the experts on a device within `budget` bytes. `possible` are the numbers of experts that a
/// layer can keep, ascending; every number where it is not known.
///
/// # Errors
/// When the trace cannot be read, is empty, or does not tell the bytes of experts.
pub fn advise(
    trace: &mut dyn TraceReader,
    budget: u64,
    possible: Option<&[u32]>,
    interrupt: Interrupt,
    tell: &mut dyn FnMut(u64),
) -> Result<Option<Advice>, ReplayError> {
    let meta = Arc::new(trace.meta().clone());
    if !meta.has_bytes() {
        return Err(ReplayError::NoBytes);
    }
    let options = ReplayOptions { warmup: 0, carry: true, ..ReplayOptions::new(1) };
    let mib = budget / MIB;
    let spec = RunSpec::plain(PolicyKind::Slru, Capacity::Bytes(mib * MIB));
    // A budget that does not hold the experts of one token in a layer has no cache.
    let mut cache = Simulation::new(&meta, spec, options).ok();
    let mut needs = Needs::new(&meta);
    let mut steps = Steps::new(&meta, false);
    let mut batch = Batch::default();
    let mut tokens = 0;
    let mut take = |chunk: Chunk, needs: &mut Needs| {
        needs.add(&chunk);
        cache.iter_mut().for_each(|cache| cache.feed(&chunk));
    };
    while trace.read(&mut batch)? {
        if interrupt.is_set() {
            return Ok(None);
        }
        tokens += batch.rows.len() as u64;
        if let Some(chunk) = steps.add(&mut batch)? {
            take(chunk, &mut needs);
        }
        tell(tokens);
    }
    if let Some(chunk) = steps.finish() {
        take(chunk, &mut needs);
    }
    if tokens == 0 {
        return Err(ReplayError::Empty);
    }
    let expert_bytes =
        meta.layers.iter().map(|layer| layer.bytes_per_expert() * u64::from(layer.n_expert)).sum();
    let mut rows = Vec::new();
    if expert_bytes <= budget {
        rows.push(AdviceRow::on_device(Choice::Whole, expert_bytes));
    } else {
        rows.extend(needs.cut(&meta, budget, possible));
        rows.extend(needs.host_layers(&meta, budget));
        if let Some(cache) = cache {
            let result = cache.finish(None)?;
            let known = |part: PartResult| (part.counts.tokens > 0).then_some(part);
            rows.push(AdviceRow {
                choice: Choice::Cache {
                    mib,
                    decode_hit_rate: known(result.decode).map(|part| part.hit_rate),
                },
                device_bytes: mib * MIB,
                prefill_bus_bytes: known(result.prefill).map(|part| part.bytes_per_token),
                decode_bus_bytes: known(result.decode).map(|part| part.bytes_per_token),
                decode_host_bytes: 0.0,
            });
        }
    }
    let remarks = trace.remark().map(str::to_owned).into_iter().collect();
    Ok(Some(Advice { budget_bytes: budget, expert_bytes, tokens, ubatch: needs.ubatch, rows, remarks }))
}

impl AdviceRow {
    fn on_device(choice: Choice, device_bytes: u64) -> AdviceRow {
        AdviceRow {
            choice,
            device_bytes,
            prefill_bus_bytes: Some(0.0),
            decode_bus_bytes: Some(0.0),
            decode_host_bytes: 0.0,
        }
    }
}

/// What all layers need.
struct Needs {
    layers: Vec<LayerNeeds>,
    n_layers: usize,
    prefill_tokens: u64,
    ubatch: usize,
    width: usize,
    used: Vec<usize>,
}

impl Needs {
    fn new(meta: &TraceMeta) -> Needs {
        let layer = |n: u32| LayerNeeds { count: vec![0; n as usize], prefill_fetched: 0 };
        Needs {
            layers: meta.layers.iter().map(|l| layer(l.n_expert)).collect(),
            n_layers: meta.layers.len(),
            prefill_tokens: 0,
            ubatch: 0,
            width: meta.candidates as usize,
            used: meta.layers.iter().map(|layer| layer.n_expert_used as usize).collect(),
        }
    }

    fn add(&mut self, chunk: &Chunk) {
        for (at, group) in chunk.groups.iter().enumerate() {
            let prefill = group.phase == crate::trace::Phase::Prefill;
            if prefill {
                self.prefill_tokens += group.rows.len() as u64;
                self.ubatch = self.ubatch.max(group.rows.len());
            }
            for layer in 0..self.n_layers {
                if prefill && group.rows.len() >= OFFLOAD_BATCH {
                    self.layers[layer].prefill_fetched +=
                        chunk.experts_of(at, layer, self.n_layers).len() as u64;
                }
                for row in group.rows.clone() {
                    let begin = (row * self.n_layers + layer) * self.width;
                    for &id in &chunk.batch.ids[begin..begin + self.used[layer]] {
                        self.layers[layer].count[usize::from(id)] += 1;
                    }
                }
            }
        }
    }

    /// The largest cut that fits.
    fn cut(&self, meta: &TraceMeta, budget: u64, possible: Option<&[u32]>) -> Option<AdviceRow> {
        let bytes = |k: u32| -> u64 {
            meta.layers.iter().map(|layer| layer.bytes_per_expert() * u64::from(k.min(layer.n_expert))).sum()
        };
        let most = meta.layers.iter().map(|layer| layer.n_expert).max()?;
        let least = meta.layers.iter().map(|layer| layer.n_expert_used).max()?;
        let fits = |k: &u32| *k >= least && bytes(*k) <= budget;
        let k = match possible {
            Some(possible) => possible.iter().rev().copied().find(fits)?,
            None => (least..=most).rev().find(fits)?,
        };
        let coverage = |needs: &LayerNeeds| {
            let mut count = needs.count.clone();
            count.sort_unstable_by(|a, b| b.cmp(a));
            let kept: u64 = count.iter().take(k as usize).sum();
            kept as f64 / count.iter().sum::<u64>().max(1) as f64
        };
        let shares: Vec<(f64, u32)> =
            self.layers.iter().map(coverage).zip(meta.layers.iter().map(|layer| layer.layer)).collect();
        let worst = shares.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let choice = Choice::Cut {
            k,
            coverage_mean: shares.iter().map(|(share, _)| share).sum::<f64>() / shares.len() as f64,
            coverage_worst: worst.0,
            worst_layer: worst.1,
        };
        Some(AdviceRow::on_device(choice, bytes(k)))
    }

    /// The fewest layers in host memory with which the others fit.
    fn host_layers(&self, meta: &TraceMeta, budget: u64) -> Option<AdviceRow> {
        let all = |layer: &crate::trace::TraceLayer| layer.bytes_per_expert() * u64::from(layer.n_expert);
        let mut device_bytes: u64 = meta.layers.iter().map(all).sum();
        let mut n = 0;
        while device_bytes > budget {
            device_bytes -= all(meta.layers.get(n)?);
            n += 1;
        }
        let fetched: u64 = self
            .layers
            .iter()
            .zip(&meta.layers)
            .take(n)
            .map(|(needs, layer)| needs.prefill_fetched.saturating_mul(layer.bytes_per_expert()))
            .fold(0, u64::saturating_add);
        let host: u64 = meta
            .layers
            .iter()
            .take(n)
            .map(|layer| layer.bytes_per_expert() * u64::from(layer.n_expert_used))
            .sum();
        let blocks = meta.layers.get(n.checked_sub(1)?).map_or(0, |layer| layer.layer + 1);
        Some(AdviceRow {
            choice: Choice::HostLayers { n: n as u32, blocks },
            device_bytes,
            prefill_bus_bytes: (self.prefill_tokens > 0).then(|| fetched as f64 / self.prefill_tokens as f64),
            decode_bus_bytes: Some(0.0),
            decode_host_bytes: host as f64,
        })
    }
}
