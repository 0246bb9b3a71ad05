//! Passes over a tiny model that have nothing to do with the product's own.

use moeslice::llama::{
    Batch, CacheType, Context, ContextOptions, ContextSettings, FlashAttention, LlamaError, Model, ModelPart,
    Node, ObserveError, Observer, PassOutputs, Token,
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
