//! Cache-aware routing with the loop closed: the model goes on with the experts that a simulated cache made it choose.
//!
//! Where the router's values are sorted (`ffn_moe_argsort`), the experts of each token are chosen by
//! `z' = z + λ·Δ·m` ([`crate::replay::CacheAware`]), and the sorted ids are rewritten so that the chosen come first. The
//! values themselves stay, so that gate weights come from `z`. The cache of a layer sees its tokens one after the other, as in
//! decode; the caches of the layers are apart, so that it makes no difference that a ubatch computes layer by layer.

use crate::arch::RoutingNode;
use crate::llama::{Node, ObserveError, Observer, Site};
use crate::moe::{ExpertLayer, Experts, Groups, LayerKind};
use crate::replay::{Counts, ReplayError, ReplayOptions, RunSpec, Simulation, Steps};
use crate::trace::{Batch, Phase, RouterValues, Row, TraceLayer, TraceMeta};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// An observer that takes the tokens of each layer through caches, and may let one of them choose.
pub struct CacheLoop {
    layers: BTreeMap<u32, LayerLoop>,
    /// Tokens of each window, in the order in which they are computed.
    windows: Vec<u32>,
    /// Whether the first cache chooses.
    steers: bool,
}

/// What belongs to one layer.
struct LayerLoop {
    meta: Arc<TraceMeta>,
    caches: Vec<Simulation>,
    steps: Steps,
    /// `[token][expert]` of the ubatch that is running.
    values: Vec<f32>,
    has_values: bool,
    /// The same, sorted.
    ids: Vec<i32>,
    chosen: Vec<u16>,
    /// The window that is computed, and its tokens so far.
    window: usize,
    position: u32,
}

/// What caches counted over all layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopCounts {
    /// All tokens.
    pub all: Counts,
    /// Those after the warm-up.
    pub steady: Counts,
}

/// Why the loop cannot be closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The architecture.
    #[error("a cache cannot choose the experts of architecture {architecture}: {why}")]
    Impossible {
        /// `general.architecture`.
        architecture: String,
        /// The reason.
        why: &'static str,
    },
    /// The cache.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A layer that was not seen, or not all of its tokens.
    #[error("layer {layer} showed the routing of {seen} of {expected} tokens where its experts are sorted")]
    NotShown {
        /// The layer.
        layer: u32,
        /// Tokens that were seen.
        seen: u64,
        /// Tokens that were computed.
        expected: u64,
    },
}

impl CacheLoop {
    /// Takes the routing of the model as it is through a cache for each of `specs`: the loop stays open. `windows` are the
    /// tokens of each window, in the order in which they are computed one by one.
    ///
    /// # Errors
    /// When the architecture does not show what is needed, or a cache does not go with the model.
    pub fn open(
        experts: &Experts,
        windows: Vec<u32>,
        specs: &[RunSpec],
        options: ReplayOptions,
    ) -> Result<Self, LoopError> {
        Self::new(experts, windows, specs, options, false)
    }

    /// Lets the cache of `spec` choose.
    ///
    /// # Errors
    /// As [`CacheLoop::open`].
    pub fn closed(
        experts: &Experts,
        windows: Vec<u32>,
        spec: RunSpec,
        options: ReplayOptions,
    ) -> Result<Self, LoopError> {
        Self::new(experts, windows, &[spec], options, true)
    }

    fn new(
        experts: &Experts,
        windows: Vec<u32>,
        specs: &[RunSpec],
        options: ReplayOptions,
        steers: bool,
    ) -> Result<Self, LoopError> {
        let impossible = |why| LoopError::Impossible { architecture: experts.architecture.clone(), why };
        match experts.arch.map(|arch| arch.routing_node) {
            Some(RoutingNode::TopkOnly) => {
                return Err(impossible("its graph does not name the sorted experts, only the selected ones"));
            }
            Some(RoutingNode::ArgsortTwice) => {
                return Err(impossible("its graph gives two routings a layer one name"));
            }
            Some(RoutingNode::Argsort) | None => {}
        }
        let trunk = || experts.layers.iter().filter(|layer| layer.kind != LayerKind::Mtp);
        if trunk().any(|layer| layer.kind == LayerKind::Hash) {
            return Err(impossible("some of its layers look their experts up by token, without a router"));
        }
        let options = ReplayOptions { one_by_one: true, ..options };
        let layers = trunk()
            .map(|layer| Ok((layer.layer, LayerLoop::new(layer, experts.groups, specs, options)?)))
            .collect::<Result<_, LoopError>>()?;
        Ok(CacheLoop { layers, windows, steers })
    }

    /// What the caches counted, in the order of their specs.
    ///
    /// # Errors
    /// When a layer did not show all tokens, or nothing came after the warm-up.
    pub fn finish(self) -> Result<Vec<LoopCounts>, LoopError> {
        let expected = self.windows.iter().map(|&tokens| u64::from(tokens)).sum();
        let mut counts: Vec<LoopCounts> = Vec::new();
        for (&layer, state) in &self.layers {
            let seen = state.tokens(&self.windows);
            if seen != expected {
                return Err(LoopError::NotShown { layer, seen, expected });
            }
            for (at, cache) in state.caches.iter().enumerate() {
                let (all, steady) = cache.counts();
                cache.check_length()?;
                match counts.get_mut(at) {
                    Some(counts) => {
                        counts.all.add_layer(&all);
                        counts.steady.add_layer(&steady);
                    }
                    None => counts.push(LoopCounts { all, steady }),
                }
            }
        }
        Ok(counts)
    }
}

impl LayerLoop {
    fn new(
        layer: &ExpertLayer,
        groups: Option<Groups>,
        specs: &[RunSpec],
        options: ReplayOptions,
    ) -> Result<Self, LoopError> {
        let candidates = layer.reachable(groups);
        let meta = Arc::new(TraceMeta::new(vec![TraceLayer::of(layer)], candidates, RouterValues::Selection));
        let caches = specs.iter().map(|spec| Ok(Simulation::new(&meta, *spec, options)?));
        Ok(LayerLoop {
            caches: caches.collect::<Result<_, LoopError>>()?,
            steps: Steps::new(&meta, true),
            meta,
            values: Vec::new(),
            has_values: false,
            ids: Vec::new(),
            chosen: Vec::new(),
            window: 0,
            position: 0,
        })
    }

    fn n_expert(&self) -> usize {
        self.meta.layers[0].n_expert as usize
    }

    /// Tokens that were seen.
    fn tokens(&self, windows: &[u32]) -> u64 {
        let whole = windows.iter().take(self.window).map(|&tokens| u64::from(tokens)).sum::<u64>();
        whole + u64::from(self.position)
    }

    /// The tokens of the ubatch, with all experts that they can reach.
    fn batch(&mut self, layer: u32, windows: &[u32]) -> Result<Batch, ObserveError> {
        let (n_expert, candidates) = (self.n_expert(), self.meta.candidates as usize);
        let mut batch = Batch::default();
        for (token, ids) in self.ids.chunks_exact(n_expert).enumerate() {
            while windows.get(self.window).is_some_and(|&tokens| self.position >= tokens) {
                self.window += 1;
                self.position = 0;
            }
            if self.window >= windows.len() {
                let n_tokens = windows.iter().map(|&tokens| tokens as usize).sum();
                return Err(ObserveError::Surplus { layer, n_tokens });
            }
            let values = &self.values[token * n_expert..(token + 1) * n_expert];
            let mut seen = vec![false; n_expert];
            for (rank, &id) in ids.iter().enumerate() {
                let known = usize::try_from(id).ok().filter(|id| *id < n_expert);
                let Some(expert) = known else {
                    let n_expert = n_expert as u32;
                    return Err(ObserveError::ExpertOutOfRange { layer, token, id, n_expert });
                };
                if std::mem::replace(&mut seen[expert], true) {
                    return Err(ObserveError::ExpertTwice { layer, token, id: expert as u32 });
                }
                if rank < candidates {
                    batch.ids.push(expert as u16);
                    batch.values.push(values[expert]);
                }
            }
            batch.z_min.push(values.iter().copied().fold(f32::INFINITY, f32::min));
            batch.z_mean.push(f32::NAN);
            batch.z_std.push(f32::NAN);
            let (session, position) = (self.window as u32, self.position);
            batch.rows.push(Row { session, turn: 0, phase: Phase::Decode, ubatch: 0, position, token: -1 });
            self.position += 1;
        }
        Ok(batch)
    }

    /// Puts the experts that were chosen in front of the others, which keep their order. Whether that changed anything.
    fn put_chosen_first(&mut self) -> bool {
        let (n_expert, used) = (self.n_expert(), self.meta.layers[0].n_expert_used as usize);
        let mut changed = false;
        for (ids, chosen) in self.ids.chunks_exact_mut(n_expert).zip(self.chosen.chunks_exact(used)) {
            let is_chosen = |id: &i32| chosen.iter().any(|&expert| i32::from(expert) == *id);
            if ids.iter().zip(chosen).all(|(&id, &expert)| id == i32::from(expert)) {
                continue;
            }
            let others: Vec<i32> = ids.iter().copied().filter(|id| !is_chosen(id)).collect();
            let first = chosen.iter().map(|&expert| i32::from(expert));
            ids.iter_mut().zip(first.chain(others)).for_each(|(to, id)| *to = id);
            changed = true;
        }
        changed
    }
}

impl Observer for CacheLoop {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let Some((site, layer)) = node.site() else { return false };
        let Some(state) = self.layers.get(&layer) else { return false };
        match site {
            Site::Logits | Site::LogitsBiased | Site::ProbsBiased | Site::Argsort => true,
            // Probabilities order the experts as the logits do, and stand for them where the graph names no logits.
            Site::Probs => !state.has_values,
            _ => false,
        }
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, layer)) = node.site() else { return Ok(()) };
        let Some(state) = self.layers.get_mut(&layer) else { return Ok(()) };
        let n_expert = state.n_expert();
        let layout = |what: String| ObserveError::Layout { node: node.name().to_owned(), what };
        if node.dims()[0] != n_expert {
            return Err(layout(format!("{} columns where {n_expert} are expected", node.dims()[0])));
        }
        if site != Site::Argsort {
            state.has_values = true;
            return node.read_floats(&mut state.values);
        }
        node.read_ids(n_expert, &mut state.ids)?;
        if !std::mem::take(&mut state.has_values) || state.ids.len() != state.values.len() {
            return Err(layout("its experts are sorted by values that the graph does not name".into()));
        }
        let mut batch = state.batch(layer, &self.windows)?;
        let Some(chunk) = state.steps.add(&mut batch).map_err(|error| layout(error.to_string()))? else {
            return Ok(());
        };
        if !self.steers {
            state.caches.iter_mut().for_each(|cache| cache.feed(&chunk));
            return Ok(());
        }
        state.chosen.clear();
        if let Some(cache) = state.caches.first_mut() {
            cache.route(&chunk, &mut state.chosen);
        }
        if state.put_chosen_first() {
            node.write_ids(&state.ids)?;
        }
        Ok(())
    }
}
