//! The routing in a block of multi-token prediction (NextN), which an ordinary context does not run.

use super::routing::RoutingObserver;
use super::tally::Tally;
use crate::llama::{Context, ContextOptions, LlamaError, Model, ModelPart};
use crate::windows::{Window, WindowObserver};

/// Runs the block behind the trunk, window by window.
///
/// The block predicts the token after the next from the trunk's state of one token and the embedding of the one that
/// follows. So a window of n tokens has n - 1 steps, each at the place of its second token, as `llama-imatrix --nextn`
/// runs them. What a model generates behind a window is not run through the block.
pub(super) struct MtpPass<'m, 't> {
    context: Context<'m>,
    pub(super) observer: RoutingObserver<'t>,
    states: Vec<f32>,
}

impl<'m, 't> MtpPass<'m, 't> {
    /// A pass beside one of the trunk with `trunk`.
    pub(super) fn new(
        model: &'m Model,
        trunk: &ContextOptions,
        tally: &'t mut Tally,
        weights: bool,
    ) -> Result<Self, LlamaError> {
        let options = ContextOptions { part: ModelPart::Mtp, ..trunk.clone() };
        let context = Context::new(model, &options)?;
        Ok(Self { context, observer: RoutingObserver::new(tally, weights), states: Vec::new() })
    }

    /// Runs the block over a window that `trunk` has just run.
    pub(super) fn window(&mut self, trunk: &Context<'_>, window: &Window) -> Result<(), LlamaError> {
        let Some((_, following)) = window.tokens.split_first() else { return Ok(()) };
        self.states.clear();
        for index in 0..following.len() {
            let n_tokens = window.tokens.len();
            let missing =
                || format!("there is no state of token {index} for the block of multi-token prediction");
            let state =
                trunk.state(index).ok_or_else(|| LlamaError::Threw { n_tokens, message: missing() })?;
            self.states.extend_from_slice(state);
        }
        self.context.clear();
        self.observer.begin_batch(&window.parts[1..])?;
        self.context.decode_states(following, &self.states, 1, &mut self.observer)
    }
}
