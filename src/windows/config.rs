//! How windows are run through a model, which depends on its architecture and on what computes.

use crate::arch::ProfilePass;
use crate::llama::{ContextOptions, ContextSettings, Model, ModelPart, PassOutputs, max_sequences};
use crate::moe::Experts;
use crate::preflight::Wanted;
use thiserror::Error;

/// Whether the windows of a batch share one store of keys and values.
///
/// In one store, llama.cpp computes tokens of several windows at once; each looks over the cells of all of them. In
/// stores apart, each window is computed by itself, over its own cells alone. The first saves ubatches, which is what
/// costs where weights travel to a GPU for each; the second saves attention, which is what costs on a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvUnified {
    /// Where a GPU takes part.
    #[default]
    Auto,
    /// Wherever the model can.
    On,
    /// Never.
    Off,
}

/// Sizes and settings of a pass over windows.
#[derive(Clone, Copy, Debug)]
pub struct WindowOptions {
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once, at most, unless the model has to see a whole window; several windows go into
    /// one batch when they fit, and a longer window is computed in slices.
    pub batch_size: u32,
    /// Tokens computed at once, at most; 0 for a whole batch.
    pub ubatch_size: u32,
    /// Whether the windows of a batch share one store of keys and values.
    pub kv_unified: KvUnified,
    /// What the context is made with.
    pub settings: ContextSettings,
}

/// What a pass is needed for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassNeeds {
    /// The logits of every token.
    pub logits: bool,
    /// The state of every token, from which a block of multi-token prediction (MTP) goes on.
    pub states: bool,
    /// The tokens of a batch are computed in the order of the batch, so that an observer can tell them apart.
    pub in_order: bool,
    /// Tokens that may follow a window in its context.
    pub room: u32,
}

/// The model cannot be run in windows.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("models of architecture {architecture} cannot be run so: {reason}")]
#[non_exhaustive]
pub struct NoPass {
    /// The architecture.
    pub architecture: String,
    /// Why.
    pub reason: String,
}

/// How the windows are run: in what context, and how many at once.
#[derive(Clone, Debug)]
pub struct PassConfig {
    /// The context. Its `n_batch` is what a batch holds at most, its `n_seq` how many windows.
    pub context: ContextOptions,
    /// Whether each token sees only those before it.
    pub causal: bool,
    /// Whether nothing of the pass is needed but what observers see.
    pub headless: bool,
}

/// What of a model decides how it is run.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    /// A window is one ubatch: tokens see later ones, or nothing is kept of earlier ones.
    whole_window: bool,
    /// Several sequences can be in a batch.
    several: bool,
    /// They can share a store of keys and values. An indexer would choose among the cells of all of them: tried, the
    /// routing then differs from that of each window by itself.
    shared_store: bool,
    /// Tokens of a sequence beyond which the model computes positions in another way.
    original_ctx: u32,
    /// A GPU takes part.
    gpu: bool,
}

impl PassConfig {
    /// How `model` is run for `needs`.
    ///
    /// # Errors
    /// When its architecture cannot.
    pub fn new(
        model: &Model,
        experts: &Experts,
        options: &WindowOptions,
        needs: PassNeeds,
    ) -> Result<PassConfig, NoPass> {
        let pass = experts.arch.map_or(ProfilePass::Headless, |arch| arch.profile);
        let no_pass =
            |reason: &str| NoPass { architecture: experts.architecture.clone(), reason: reason.to_owned() };
        if let ProfilePass::Impossible(reason) = pass {
            return Err(no_pass(reason));
        }
        let causal = model.is_causal() && !model.is_diffusion();
        let whole_window = !causal || pass == ProfilePass::NonCausal;
        if whole_window && needs.room > 0 {
            return Err(no_pass("it does not write token by token, so it has nothing to generate"));
        }
        let states = needs.states && !whole_window;
        let headless = !needs.logits && !states;
        let outputs = match pass {
            _ if !headless => PassOutputs::Logits,
            ProfilePass::Logits(_) => PassOutputs::Logits,
            _ => PassOutputs::None,
        };
        let abilities = Abilities {
            whole_window,
            // The states that an MTP block goes on from are those of one sequence; recurrent layers keep theirs
            // for each sequence apart.
            several: !whole_window && !states && !model.is_recurrent(),
            shared_store: !model.has_indexer(),
            original_ctx: model.n_ctx_original(),
            gpu: model.uses_gpu(),
        };
        let part = if states { ModelPart::TrunkWithStates } else { ModelPart::Trunk };
        let sizes = Sizes::new(options, needs, outputs, abilities);
        Ok(PassConfig { context: sizes.context(options, outputs, part), causal, headless })
    }

    /// What [`Runner`](super::Runner) makes of it.
    pub fn wanted(&self) -> Wanted {
        Wanted::all_outputs(self.context.clone())
    }
}

/// The sizes of the context of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    unified: bool,
    n_ctx: u32,
    n_seq: u32,
    n_batch: u32,
    n_ubatch: u32,
}

impl Sizes {
    fn new(options: &WindowOptions, needs: PassNeeds, outputs: PassOutputs, model: Abilities) -> Sizes {
        let n_window = options.ctx_size.max(1);
        if model.whole_window {
            let n_ctx = n_window.saturating_add(needs.room);
            return Sizes { unified: false, n_ctx, n_seq: 1, n_batch: n_window, n_ubatch: n_window };
        }
        let limit = options.batch_size.max(1);
        let n_ubatch = if options.ubatch_size == 0 { limit } else { options.ubatch_size.min(limit) };
        let unified = model.several
            && model.shared_store
            && match options.kv_unified {
                KvUnified::Auto => model.gpu,
                KvUnified::On => true,
                KvUnified::Off => false,
            };
        let slice = n_window.min(limit);
        let n_batch = if unified {
            // Each token looks over the cells of the whole batch, so a batch is not larger than what is computed at
            // once. llama.cpp also takes the cells for the length of each sequence.
            n_ubatch.min(model.original_ctx).max(slice)
        } else if model.several && !needs.in_order && outputs == PassOutputs::None {
            (limit / n_window).clamp(1, max_sequences()).saturating_mul(n_window).min(limit)
        } else {
            // Logits of every token of a batch are kept at once: one window is enough of them.
            slice
        };
        let n_ubatch = n_ubatch.min(n_batch);
        let n_seq = if unified {
            max_sequences().min(n_ubatch)
        } else {
            (n_batch / n_window).clamp(1, max_sequences())
        };
        let cells = if unified { n_batch.max(n_window) } else { n_window };
        Sizes { unified, n_ctx: cells.saturating_add(needs.room), n_seq, n_batch, n_ubatch }
    }

    fn context(self, options: &WindowOptions, outputs: PassOutputs, part: ModelPart) -> ContextOptions {
        ContextOptions {
            n_ctx: self.n_ctx,
            n_seq: self.n_seq,
            n_batch: self.n_batch,
            n_ubatch: self.n_ubatch,
            kv_unified: self.unified,
            outputs,
            part,
            settings: options.settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(ctx_size: u32, batch_size: u32, ubatch_size: u32, kv_unified: KvUnified) -> WindowOptions {
        WindowOptions { ctx_size, batch_size, ubatch_size, kv_unified, settings: ContextSettings::default() }
    }

    const CAUSAL: Abilities =
        Abilities { whole_window: false, several: true, shared_store: true, original_ctx: 4096, gpu: false };

    fn sizes(options: WindowOptions, needs: PassNeeds, outputs: PassOutputs, model: Abilities) -> Sizes {
        let sizes = Sizes::new(&options, needs, outputs, model);
        assert!(sizes.n_ubatch <= sizes.n_batch && sizes.n_batch <= sizes.n_ctx * sizes.n_seq.max(1));
        // llama.cpp asserts on an output buffer with fewer rows than sequences.
        assert!(sizes.n_seq <= sizes.n_batch, "{sizes:?}");
        sizes
    }

    #[test]
    fn auto_is_unified_where_a_gpu_takes_part() {
        let of = |gpu| {
            let model = Abilities { gpu, ..CAUSAL };
            sizes(options(128, 2048, 512, KvUnified::Auto), PassNeeds::default(), PassOutputs::None, model)
        };
        assert!(!of(false).unified && of(true).unified);
        assert_eq!((of(false).n_batch, of(false).n_seq), (2048, 16));
        assert_eq!((of(true).n_batch, of(true).n_ctx), (512, 512));
    }

    #[test]
    fn recurrent_models_have_one_sequence_whatever_was_asked() {
        let model = Abilities { several: false, gpu: true, ..CAUSAL };
        let sizes =
            sizes(options(128, 2048, 512, KvUnified::On), PassNeeds::default(), PassOutputs::None, model);
        assert_eq!(sizes, Sizes { unified: false, n_ctx: 128, n_seq: 1, n_batch: 128, n_ubatch: 128 });
    }

    #[test]
    fn a_model_with_an_indexer_keeps_its_windows_apart() {
        let model = Abilities { shared_store: false, gpu: true, ..CAUSAL };
        let sizes =
            sizes(options(128, 512, 512, KvUnified::On), PassNeeds::default(), PassOutputs::None, model);
        assert_eq!((sizes.unified, sizes.n_seq), (false, 4));
    }

    #[test]
    fn batch_size_bounds_the_outputs_of_a_longer_window() {
        for (unified, outputs) in [KvUnified::On, KvUnified::Off]
            .into_iter()
            .flat_map(|unified| [PassOutputs::Logits, PassOutputs::None].map(|outputs| (unified, outputs)))
        {
            let sizes = sizes(options(4096, 256, 512, unified), PassNeeds::default(), outputs, CAUSAL);
            assert_eq!((sizes.n_ctx, sizes.n_batch, sizes.n_ubatch), (4096, 256, 256), "{unified:?}");
        }
    }

    #[test]
    fn a_model_that_sees_later_tokens_gets_the_whole_window_at_once() {
        let model = Abilities { whole_window: true, several: false, ..CAUSAL };
        let sizes =
            sizes(options(512, 64, 32, KvUnified::On), PassNeeds::default(), PassOutputs::None, model);
        assert_eq!((sizes.n_batch, sizes.n_ubatch, sizes.n_seq), (512, 512, 1));
    }

    #[test]
    fn a_shared_store_does_not_outgrow_the_original_context() {
        let model = Abilities { original_ctx: 1024, ..CAUSAL };
        let of = |ctx| {
            sizes(options(ctx, 8192, 8192, KvUnified::On), PassNeeds::default(), PassOutputs::None, model)
        };
        assert_eq!((of(128).n_batch, of(128).n_ctx), (1024, 1024));
        assert_eq!((of(2048).n_batch, of(2048).n_ctx), (2048, 2048));
    }
}
