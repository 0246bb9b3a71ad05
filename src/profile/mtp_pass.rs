//! The routing in a block of multi-token prediction (NextN), which an ordinary context does not run.

use super::routing::RoutingObserver;
use super::tally::Tally;
use crate::llama::{Context, ContextOptions, LlamaError, Model, ModelPart};
use crate::windows::{Computed, Piece, WindowObserver};

/// Runs the block behind the trunk, batch by batch.
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
    /// The context of a pass beside one of the trunk with `trunk`.
    pub(super) fn context(trunk: &ContextOptions) -> ContextOptions {
        ContextOptions { part: ModelPart::Mtp, ..trunk.clone() }
    }

    /// A pass beside one of the trunk with `trunk`.
    pub(super) fn new(
        model: &'m Model,
        trunk: &ContextOptions,
        tally: &'t mut Tally,
        weights: bool,
    ) -> Result<Self, LlamaError> {
        let context = Context::new(model, &Self::context(trunk))?;
        // Nothing is looked at behind the routing of the block: no state, no logits.
        let observer = RoutingObserver::new(tally, weights).stopping_early();
        Ok(Self { context, observer, states: Vec::new() })
    }

    /// Runs the block over what the trunk has just computed.
    pub(super) fn follow(&mut self, trunk: &Computed<'_>) -> Result<(), LlamaError> {
        trunk.pieces.iter().try_for_each(|piece| self.piece(trunk, *piece))
    }

    fn piece(&mut self, trunk: &Computed<'_>, piece: Piece) -> Result<(), LlamaError> {
        let window = &trunk.windows[piece.window];
        let first = piece.position as usize + 1;
        let end = window.tokens.len().min(first + piece.n_tokens);
        if piece.position == 0 {
            self.context.clear()?;
        }
        if first >= end {
            return Ok(());
        }
        self.states.clear();
        for index in piece.index..piece.index + end - first {
            let missing = LlamaError::NoState { index };
            self.states.extend_from_slice(trunk.context.state(index)?.ok_or(missing)?);
        }
        self.observer.begin_batch(&window.parts[first..end])?;
        self.context.decode_states(
            &window.tokens[first..end],
            &self.states,
            piece.position + 1,
            &mut self.observer,
        )
    }
}
