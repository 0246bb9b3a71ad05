//! How the profile pass runs a model, which depends on its architecture.

use super::pass::{ProfileError, ProfileOptions};
use crate::llama::{ContextOptions, Model, Outputs, Part, max_sequences};
use crate::moe::{Experts, ProfilePass};

/// How the windows are run: through which entry, and in what context.
pub(super) struct PassPlan {
    pub context: ContextOptions,
    pub encode: bool,
    /// Whether nothing of the pass is needed but the routing.
    pub routing_only: bool,
    /// The NextN layer that is run behind the trunk.
    pub nextn: Option<u32>,
}

impl PassPlan {
    /// With `by_role`, one batch holds tokens that count for several parts. It is one window then: llama.cpp computes
    /// the tokens of one sequence in their order, and those of several in an order of its own.
    pub fn new(
        model: &Model,
        experts: &Experts,
        options: &ProfileOptions,
        by_role: bool,
    ) -> Result<PassPlan, ProfileError> {
        let pass = experts.family.map_or(ProfilePass::Headless, |family| family.profile);
        let encode = match pass {
            ProfilePass::Impossible(reason) => {
                let architecture = experts.architecture.clone();
                return Err(ProfileError::NoPass { architecture, reason: reason.to_owned() });
            }
            ProfilePass::NonCausal => true,
            _ => model.is_diffusion(),
        };
        if encode && options.generate.is_some() {
            let architecture = experts.architecture.clone();
            let reason = "they do not write token by token, so --generate has nothing to count".to_owned();
            return Err(ProfileError::NoPass { architecture, reason });
        }
        let nextn = experts.nextn_that_runs().filter(|_| options.nextn && !encode);
        // The states that a NextN block goes on from are those of an ordinary pass, of one sequence.
        let logits = options.lm_head || options.generate.is_some() || nextn.is_some();
        let headless = !logits && !matches!(pass, ProfilePass::Logits(_));
        let outputs = if headless { Outputs::None } else { Outputs::Logits };
        let n_window = options.ctx_size.max(1);
        // Logits of every token of a batch are kept at once: one window is enough of them.
        let several = headless && !encode && !by_role;
        let n_seq = if several { (options.batch_size / n_window).clamp(1, max_sequences()) } else { 1 };
        let n_batch = n_window.saturating_mul(n_seq);
        // An answer needs room behind its window.
        let n_ctx = n_window.saturating_add(options.generate.unwrap_or(0));
        // A model that looks at later tokens needs the whole window at once.
        let n_ubatch = if encode { n_batch } else { options.ubatch_size.clamp(1, n_batch) };
        let context = ContextOptions {
            n_ctx,
            n_seq,
            n_batch,
            n_ubatch,
            threads: options.threads,
            outputs,
            flash_attention: options.flash_attention,
            part: if nextn.is_some() { Part::TrunkWithStates } else { Part::Trunk },
            exact_cache: false,
            interrupt: options.interrupt,
        };
        Ok(PassPlan { context, encode, routing_only: headless, nextn })
    }
}
