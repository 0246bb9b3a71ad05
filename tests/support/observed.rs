//! Passes over a tiny model that have nothing to do with the product's own.

use moeslice::llama::{
    Batch, CacheType, Context, ContextOptions, ContextSettings, FlashAttention, LlamaError, Model, ModelPart,
    Node, ObserveError, Observer, PassOutputs, Site, Token,
};
use std::collections::BTreeMap;

/// Looks at nothing.
pub struct Nothing;

impl Observer for Nothing {
    fn wants(&mut self, _node: &Node<'_>) -> bool {
        false
    }

    fn observe(&mut self, _node: &mut Node<'_>) -> Result<(), ObserveError> {
        Ok(())
    }
}

/// Counts the ids by which the experts' down weights are really multiplied, by layer.
#[derive(Default)]
pub struct MultipliedIds {
    pub counts: BTreeMap<u32, BTreeMap<i32, u64>>,
}

impl Observer for MultipliedIds {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        layer_of(node).is_some()
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some(layer) = layer_of(node) else { return Ok(()) };
        let ids = node.source(2).expect("the ids");
        let mut read = Vec::new();
        ids.read_ids(ids.dims()[0], &mut read)?;
        let counts = self.counts.entry(layer).or_default();
        read.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        Ok(())
    }
}

fn layer_of(node: &Node<'_>) -> Option<u32> {
    if !node.is_mul_mat_id() {
        return None;
    }
    let weights = node.source(0)?;
    weights.name().strip_prefix("blk.")?.strip_suffix(".ffn_down_exps.weight")?.parse().ok()
}

/// The order in which a graph selects experts and uses them.
#[derive(Default)]
pub struct GraphOrder {
    selected: Vec<u32>,
    faults: Vec<String>,
}

impl GraphOrder {
    /// Checks what a pass that ends behind the last selection relies on: layers select in ascending order, and no
    /// experts are used that were not selected before.
    pub fn check(&self, layers: &[u32]) {
        assert!(self.faults.is_empty(), "{:?}", self.faults);
        // Each ubatch begins with the first layer again.
        assert!(self.selected.len() >= layers.len() && self.selected.len().is_multiple_of(layers.len()));
        for ubatch in self.selected.chunks(layers.len()) {
            assert_eq!(ubatch, layers, "layers in the order of their selection");
        }
    }
}

impl Observer for GraphOrder {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        if let Some((Site::Topk, layer)) = node.site() {
            self.selected.push(layer);
        }
        if node.is_mul_mat_id() {
            let weights = node.source(0).expect("weights");
            let layer = weights.name().strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let layer = layer.and_then(|(layer, _)| layer.parse::<u32>().ok());
            if layer.is_none() || layer != self.selected.last().copied() {
                let last = self.selected.last();
                self.faults.push(format!("{} is used behind the selection of {last:?}", weights.name()));
            }
        }
        false
    }

    fn observe(&mut self, _node: &mut Node<'_>) -> Result<(), ObserveError> {
        Ok(())
    }
}

/// Hides the nodes of one site from another observer.
pub struct Hiding<'o> {
    pub observer: &'o mut dyn Observer,
    pub site: Site,
}

impl Observer for Hiding<'_> {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        node.site().is_none_or(|(site, _)| site != self.site) && self.observer.wants(node)
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        self.observer.observe(node)
    }
}

/// How a pass is run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tokens of a sequence.
    pub n_ctx: u32,
    /// Tokens computed at once.
    pub n_ubatch: u32,
    /// Whether the logits are computed.
    pub head: bool,
    /// Whether keys and values are kept in full precision.
    pub exact: bool,
}

impl Shape {
    fn options(self, part: ModelPart) -> ContextOptions {
        let cache = if self.exact { CacheType::F32 } else { CacheType::F16 };
        ContextOptions {
            n_ctx: self.n_ctx,
            n_seq: 1,
            n_batch: self.n_ctx,
            n_ubatch: self.n_ubatch,
            kv_unified: false,
            part,
            outputs: if self.head { PassOutputs::Logits } else { PassOutputs::None },
            settings: ContextSettings {
                flash_attention: FlashAttention::Off,
                cache_k: cache,
                cache_v: cache,
                ..ContextSettings::default()
            },
        }
    }
}

/// Runs each window from an empty context; `each` sees what came out of it.
pub fn pass(
    model: &Model,
    windows: &[Vec<Token>],
    shape: Shape,
    observer: &mut dyn Observer,
    each: &mut dyn FnMut(&Context<'_>, usize),
) -> Result<(), LlamaError> {
    let mut context = Context::new(model, &shape.options(ModelPart::Trunk))?;
    let mut batch = Batch::new();
    for window in windows {
        batch.clear();
        batch.push(0, 0, window);
        context.clear()?;
        context.decode(&mut batch, observer)?;
        each(&context, window.len());
    }
    Ok(())
}

/// Runs each window through the trunk, and then, watched, one token at a time through the MTP block.
pub fn mtp_pass(
    model: &Model,
    windows: &[Vec<Token>],
    shape: Shape,
    observer: &mut dyn Observer,
) -> Result<(), LlamaError> {
    let mut trunk = Context::new(model, &shape.options(ModelPart::TrunkWithStates))?;
    let mut block = Context::new(model, &shape.options(ModelPart::Mtp))?;
    let mut batch = Batch::new();
    for window in windows {
        batch.clear();
        batch.push(0, 0, window);
        trunk.clear()?;
        trunk.decode(&mut batch, &mut Nothing)?;
        block.clear()?;
        for (at, pair) in window.windows(2).enumerate() {
            let state = trunk.state(at)?.expect("a state").to_vec();
            block.decode_states(&pair[1..], &state, at as u32 + 1, observer)?;
        }
    }
    Ok(())
}
