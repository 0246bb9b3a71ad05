//! The tally of one pass: what each layer selected, checked as it comes in and once more at the end.
//!
//! Knows nothing of llama.cpp: the ids and gate weights of a ubatch are handed over as plain numbers.

use crate::usage::{AllEqual, ExactSums, ExpertSums};
use std::collections::BTreeMap;
use thiserror::Error;

/// Experts of a layer, and how many of them a token selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// Experts.
    pub n_expert: u32,
    /// Experts selected for a token.
    pub n_expert_used: u32,
}

/// Counts and gate weights of all layers, for each part of the texts apart.
#[derive(Clone, Debug)]
pub struct Tally {
    shapes: BTreeMap<u32, LayerShape>,
    layers: BTreeMap<u32, LayerTally>,
    /// The part that each token of the running batch belongs to.
    batch: Vec<u32>,
    /// Tokens of each part, over all batches.
    expected: Vec<u64>,
}

#[derive(Clone, Debug)]
struct LayerTally {
    /// One entry a part: all batches before the running one, added up without rounding, so that it makes no difference
    /// which of them this pass has.
    sums: Vec<ExactSums>,
    /// The running batch.
    parts: Vec<ExpertSums>,
    /// Tokens of the running batch that were counted.
    seen: usize,
}

/// A selection that no router can have made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BadSelection {
    /// An id outside `0..n_expert`.
    OutOfRange {
        /// Position in the ubatch.
        token: usize,
        /// What was read.
        id: i32,
    },
    /// The same expert twice for one token.
    Twice {
        /// Position in the ubatch.
        token: usize,
        /// The expert.
        id: u32,
    },
    /// A gate weight that is no finite number.
    Weight {
        /// Position in the ubatch.
        token: usize,
        /// The expert.
        id: u32,
        /// What was read.
        value: f32,
    },
    /// More tokens than the batch holds.
    Surplus {
        /// Tokens of the batch.
        n_tokens: usize,
    },
}

/// A pass whose figures cannot be right.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TallyError {
    /// A layer that holds experts was not seen in the graph.
    #[error(
        "layer {layer} holds experts, but its routing never appeared while the model ran; its architecture may route in a way that is not known here, so nothing is written"
    )]
    NeverReached {
        /// The layer.
        layer: u32,
    },
    /// A layer saw fewer or more tokens than were computed.
    #[error(
        "layer {layer} routed {seen} tokens of {expected}; the counts would be wrong, so nothing is written"
    )]
    TokenCount {
        /// The layer.
        layer: u32,
        /// Tokens that it routed.
        seen: u64,
        /// Tokens that were computed.
        expected: u64,
    },
    /// All experts of a layer were selected equally often.
    #[error(transparent)]
    AllEqual(#[from] AllEqual),
}

impl Tally {
    /// An empty tally of layers with the given shapes, for `n_parts` parts.
    pub fn new(shapes: BTreeMap<u32, LayerShape>, with_weights: bool, n_parts: usize) -> Self {
        let layers = shapes
            .iter()
            .map(|(&layer, shape)| {
                let zero = ExpertSums::zero(shape.n_expert as usize, with_weights);
                let sums = vec![ExactSums::zero(shape.n_expert as usize, with_weights); n_parts];
                (layer, LayerTally { sums, parts: vec![zero; n_parts], seen: 0 })
            })
            .collect();
        Tally { shapes, layers, batch: Vec::new(), expected: vec![0; n_parts] }
    }

    /// Begins a batch: `parts` says of each of its tokens, in their order, which part it belongs to.
    ///
    /// # Panics
    /// When there is no such part: an error of the caller.
    pub fn begin_batch(&mut self, parts: &[u32]) {
        for &part in parts {
            self.expected[part as usize] += 1;
        }
        self.batch.clear();
        self.batch.extend_from_slice(parts);
        self.layers.values_mut().for_each(LayerTally::end_batch);
    }

    /// The layers that are counted.
    pub fn layers(&self) -> impl Iterator<Item = u32> {
        self.shapes.keys().copied()
    }

    /// The shape of `layer`, when it is one that holds experts.
    pub fn shape(&self, layer: u32) -> Option<LayerShape> {
        self.shapes.get(&layer).copied()
    }

    /// Counts one ubatch of `layer`, the tokens of the batch that follow those counted before: `ids`
    /// `[n_expert_used, n_tokens]` and, when the tally has weights, `weights` of the same shape. Nothing of it is counted
    /// when anything in it is bad.
    ///
    /// # Errors
    /// Names the token and what is wrong with its selection.
    ///
    /// # Panics
    /// When the layer is none of the tally's, or the lengths do not match: errors of the caller, not of the input.
    pub fn add(&mut self, layer: u32, ids: &[i32], weights: Option<&[f32]>) -> Result<(), BadSelection> {
        let shape = self.shapes[&layer];
        let used = shape.n_expert_used as usize;
        assert!(ids.len().is_multiple_of(used) && weights.is_none_or(|weights| weights.len() == ids.len()));
        for (token, selected) in ids.chunks_exact(used).enumerate() {
            for (rank, &id) in selected.iter().enumerate() {
                if !u32::try_from(id).is_ok_and(|id| id < shape.n_expert) {
                    return Err(BadSelection::OutOfRange { token, id });
                }
                if selected[..rank].contains(&id) {
                    return Err(BadSelection::Twice { token, id: id as u32 });
                }
                match weights.map(|weights| weights[token * used + rank]) {
                    Some(value) if !value.is_finite() => {
                        return Err(BadSelection::Weight { token, id: id as u32, value });
                    }
                    _ => {}
                }
            }
        }
        let tally = self.layers.get_mut(&layer).expect("every shape has its sums");
        let end = tally.seen + ids.len() / used;
        let Some(parts) = self.batch.get(tally.seen..end) else {
            return Err(BadSelection::Surplus { n_tokens: self.batch.len() });
        };
        tally.seen = end;
        for (token, (&part, selected)) in parts.iter().zip(ids.chunks_exact(used)).enumerate() {
            let sums = &mut tally.parts[part as usize];
            sums.n_tokens += 1;
            for &id in selected {
                sums.count[id as usize] += 1;
            }
            if let (Some(sums), Some(weights)) = (&mut sums.weight, weights) {
                for (&id, &weight) in selected.iter().zip(&weights[token * used..]) {
                    sums[id as usize] += f64::from(weight);
                }
            }
        }
        Ok(())
    }

    /// Checks what was counted against the tokens of all batches so far.
    ///
    /// # Errors
    /// When a layer was never reached, or did not route every token.
    pub fn check(&self) -> Result<(), TallyError> {
        for (&layer, tally) in &self.layers {
            let seen: u64 = (0..tally.parts.len()).map(|part| tally.n_tokens(part)).sum();
            if seen == 0 && self.expected.iter().any(|&tokens| tokens > 0) {
                return Err(TallyError::NeverReached { layer });
            }
            for (part, &expected) in self.expected.iter().enumerate() {
                let seen = tally.n_tokens(part);
                if seen != expected {
                    return Err(TallyError::TokenCount { layer, seen, expected });
                }
            }
        }
        Ok(())
    }

    /// Tokens of each part, over all batches so far.
    pub fn tokens(&self) -> &[u64] {
        &self.expected
    }

    /// What was counted in each layer, one entry a part.
    ///
    /// # Errors
    /// As [`Tally::check`].
    pub fn finish(mut self) -> Result<BTreeMap<u32, Vec<ExactSums>>, TallyError> {
        self.check()?;
        self.layers.values_mut().for_each(LayerTally::end_batch);
        Ok(self.layers.into_iter().map(|(layer, tally)| (layer, tally.sums)).collect())
    }
}

impl LayerTally {
    /// Tokens of a part, those of the running batch among them.
    fn n_tokens(&self, part: usize) -> u64 {
        self.sums[part].n_tokens + self.parts[part].n_tokens
    }

    /// Adds the running batch to those before it.
    fn end_batch(&mut self) {
        self.seen = 0;
        let used = self.sums.iter_mut().zip(&mut self.parts).filter(|(_, batch)| batch.n_tokens > 0);
        for (sums, batch) in used {
            sums.add(batch).expect("what was computed token by token adds up in 64 bits");
            *batch = ExpertSums::zero_like(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch of `parts` over two layers.
    fn tally(parts: &[u32]) -> Tally {
        let shape = LayerShape { n_expert: 4, n_expert_used: 2 };
        let mut tally = Tally::new(BTreeMap::from([(0, shape), (3, shape)]), true, 2);
        tally.begin_batch(parts);
        tally
    }

    #[test]
    fn counts_and_weights_go_to_the_selected_experts() {
        let mut tally = tally(&[0, 0]);
        for layer in [0, 3] {
            tally.add(layer, &[1, 3, 3, 0], Some(&[0.75, 0.25, 0.5, 0.5])).unwrap();
        }
        let layers = tally.finish().unwrap();
        assert_eq!(layers[&3][0].count, [1, 1, 0, 2]);
        let sums = layers[&3][0].rounded();
        assert_eq!(sums.weight.as_deref(), Some([0.5, 0.75, 0.0, 0.75].as_slice()));
        assert_eq!(layers[&0][1].n_tokens, 0);
    }

    #[test]
    fn tokens_go_to_their_corpus_across_batches() {
        let mut tally = tally(&[0, 1, 1]);
        for layer in [0, 3] {
            tally.add(layer, &[0, 1, 1, 2], Some(&[0.5; 4])).unwrap();
            tally.add(layer, &[2, 3], Some(&[1.0, 2.0])).unwrap();
        }
        tally.check().unwrap();
        tally.begin_batch(&[1, 0]);
        for layer in [0, 3] {
            tally.add(layer, &[3, 1, 0, 3], Some(&[0.5; 4])).unwrap();
        }
        assert_eq!(tally.tokens(), [2, 3]);
        let layers = tally.finish().unwrap();
        assert_eq!(layers[&0][0].count, [2, 1, 0, 1]);
        assert_eq!(layers[&3][1].count, [0, 2, 2, 2]);
        let sums = layers[&3][1].rounded();
        assert_eq!(sums.weight.as_deref(), Some([0.0, 1.0, 1.5, 2.5].as_slice()));
    }

    #[test]
    fn expert_id_out_of_range_is_refused() {
        let mut tally = tally(&[0, 0]);
        for id in [4, -1, i32::MAX] {
            let error = tally.add(0, &[0, 1, 2, id], Some(&[0.5; 4])).unwrap_err();
            assert_eq!(error, BadSelection::OutOfRange { token: 1, id });
        }
        assert_eq!(tally.layers[&0].parts[0].count, [0; 4]);
    }

    #[test]
    fn repeated_expert_id_of_a_token_is_refused() {
        assert_eq!(tally(&[0]).add(0, &[2, 2], None), Err(BadSelection::Twice { token: 0, id: 2 }));
    }

    #[test]
    fn gate_weight_that_is_not_a_number_is_refused() {
        let error = tally(&[0]).add(0, &[2, 1], Some(&[0.5, f32::NAN])).unwrap_err();
        assert!(matches!(error, BadSelection::Weight { token: 0, id: 1, value } if value.is_nan()));
    }

    #[test]
    fn layer_never_reached_is_refused() {
        let mut tally = tally(&[0]);
        tally.add(0, &[0, 1], None).unwrap();
        assert_eq!(tally.finish().unwrap_err(), TallyError::NeverReached { layer: 3 });
    }

    #[test]
    fn layer_that_saw_one_token_a_batch_is_refused() {
        let mut tally = tally(&[1, 1]);
        tally.add(0, &[0, 1, 2, 3], None).unwrap();
        tally.add(3, &[0, 1], None).unwrap();
        assert_eq!(tally.finish().unwrap_err(), TallyError::TokenCount { layer: 3, seen: 1, expected: 2 });
    }

    #[test]
    fn layer_that_routes_too_many_tokens_is_refused() {
        let mut tally = tally(&[0]);
        tally.add(0, &[0, 1], None).unwrap();
        assert_eq!(tally.add(0, &[0, 1], None), Err(BadSelection::Surplus { n_tokens: 1 }));
    }
}
