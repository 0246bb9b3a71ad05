//! How windows are run through a model, which depends on its architecture.

use crate::arch::ProfilePass;
use crate::llama::{ContextOptions, FlashAttention, Model, ModelPart, PassOutputs, max_sequences};
use crate::moe::Experts;
use crate::progress::Interrupt;
use thiserror::Error;

/// Sizes and settings of a pass over windows.
#[derive(Clone, Copy, Debug)]
pub struct WindowOptions {
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once; several windows go into one batch when they fit.
    pub batch_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// Threads on the processor.
    pub threads: u32,
    /// Fused attention.
    pub flash_attention: FlashAttention,
    /// When it comes, the pass ends with [`crate::llama::LlamaError::Interrupted`].
    pub interrupt: Interrupt,
}

/// What a pass is needed for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassNeeds {
    /// The logits of every token.
    pub logits: bool,
    /// The state of every token, from which a block of multi-token prediction (MTP) goes on.
    pub states: bool,
    /// One window a batch: llama.cpp computes the tokens of one sequence in their order, and those of several in an
    /// order of its own.
    pub one_window: bool,
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

/// How the windows are run: through which entry, and in what context.
#[derive(Clone, Debug)]
pub struct PassConfig {
    /// The context.
    pub context: ContextOptions,
    /// Whether a window goes through the encoder: the model attends to later tokens too.
    pub encode: bool,
    /// Whether nothing of the pass is needed but what observers see.
    pub headless: bool,
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
        let encode = match pass {
            ProfilePass::Impossible(reason) => return Err(no_pass(reason)),
            ProfilePass::NonCausal => true,
            _ => model.is_diffusion(),
        };
        if encode && needs.room > 0 {
            return Err(no_pass("it does not write token by token, so it has nothing to generate"));
        }
        let states = needs.states && !encode;
        // The states that an MTP block goes on from are those of an ordinary pass, of one sequence.
        let headless = !needs.logits && !states && !matches!(pass, ProfilePass::Logits(_));
        let n_window = options.ctx_size.max(1);
        // Logits of every token of a batch are kept at once: one window is enough of them.
        let several = headless && !encode && !needs.one_window;
        let n_seq = if several { (options.batch_size / n_window).clamp(1, max_sequences()) } else { 1 };
        let n_batch = n_window.saturating_mul(n_seq);
        let context = ContextOptions {
            n_ctx: n_window.saturating_add(needs.room),
            n_seq,
            n_batch,
            // A model that looks at later tokens needs the whole window at once.
            n_ubatch: if encode { n_batch } else { options.ubatch_size.clamp(1, n_batch) },
            threads: options.threads,
            outputs: if headless { PassOutputs::None } else { PassOutputs::Logits },
            flash_attention: options.flash_attention,
            part: if states { ModelPart::TrunkWithStates } else { ModelPart::Trunk },
            exact_cache: false,
            interrupt: options.interrupt,
        };
        Ok(PassConfig { context, encode, headless })
    }

    /// Windows of a batch, at most.
    pub fn windows_per_batch(&self) -> usize {
        self.context.n_seq as usize
    }
}
