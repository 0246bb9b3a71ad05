//! The observer that reads a layer's routing: which experts each token selected, and with what gate weight.

use super::tally::{BadSelection, Tally};
use crate::llama::{Node, ObserveError, Observer, Site};
use crate::windows::WindowObserver;
use std::collections::BTreeMap;

/// Fills a [`Tally`] from the running graph.
///
/// The selected ids are the first `n_expert_used` columns of `ffn_moe_argsort-<layer>`; they are read through
/// `ffn_moe_topk-<layer>`, the view of just these columns that every architecture has, by its own row stride, and at
/// that very node: the gate weights may be computed after all the work that the ids are for, as Vulkan's reordering of
/// the graph does, and by then other tensors lie in their memory.
pub struct RoutingObserver<'t> {
    tally: &'t mut Tally,
    with_weights: bool,
    /// Which node holds the final weights of a layer: known once a ubatch has gone by.
    last_site: BTreeMap<u32, Site>,
    /// The latest reading of each layer of the ubatch that is running.
    pending: BTreeMap<u32, Reading>,
    /// The layer after whose routing the rest of the graph is left out.
    last_layer: Option<u32>,
    done: bool,
    ubatches: Ubatches,
}

/// How many times the graph was computed, and for how many tokens at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ubatches {
    /// Times.
    pub count: u64,
    /// Tokens of the largest.
    pub largest: u32,
}

struct Reading {
    site: Site,
    ids: Vec<i32>,
    weights: Vec<f32>,
}

impl<'t> RoutingObserver<'t> {
    /// An observer that counts into `tally`, with gate weights when the tally has them.
    pub fn new(tally: &'t mut Tally, with_weights: bool) -> Self {
        RoutingObserver {
            tally,
            with_weights,
            last_site: BTreeMap::new(),
            pending: BTreeMap::new(),
            last_layer: None,
            done: false,
            ubatches: Ubatches::default(),
        }
    }

    /// How the graph was computed so far.
    pub fn ubatches(&self) -> Ubatches {
        self.ubatches
    }

    /// Leaves out what comes after the routing of the last layer with experts: its experts, the norm, the head. No
    /// routing depends on them, neither in this ubatch nor in a later one of the same window.
    #[must_use]
    pub fn stopping_early(mut self) -> Self {
        self.last_layer = self.tally.layers().max();
        self
    }

    /// The tally, with all that was read so far.
    ///
    /// # Errors
    /// When a reading of the last ubatch is bad.
    pub fn tally(&mut self) -> Result<&mut Tally, ObserveError> {
        while let Some((layer, reading)) = self.pending.pop_first() {
            self.count(layer, &reading)?;
        }
        Ok(self.tally)
    }

    fn is_wanted(&self, site: Site, layer: u32) -> bool {
        let weights =
            matches!(site, Site::Weights | Site::WeightsSoftmax | Site::WeightsNorm | Site::WeightsScaled);
        let last = self.last_site.get(&layer).is_none_or(|&last| last == site);
        site == Site::Topk || self.with_weights && weights && last
    }

    fn count(&mut self, layer: u32, reading: &Reading) -> Result<(), ObserveError> {
        self.last_site.insert(layer, reading.site);
        if self.with_weights && reading.site == Site::Topk {
            return Err(ObserveError::Layout {
                node: format!("ffn_moe_topk-{layer}"),
                what: "no gate weights follow the selected ids".into(),
            });
        }
        let weights = self.with_weights.then_some(reading.weights.as_slice());
        self.tally.add(layer, &reading.ids, weights).map_err(|bad| match bad {
            BadSelection::OutOfRange { token, id } => {
                let n_expert = self.tally.shape(layer).map_or(0, |shape| shape.n_expert);
                ObserveError::ExpertOutOfRange { layer, token, id, n_expert }
            }
            BadSelection::Twice { token, id } => ObserveError::ExpertTwice { layer, token, id },
            BadSelection::Weight { token, id, value } => {
                ObserveError::WeightNotFinite { layer, token, expert: id, value }
            }
            BadSelection::Surplus { n_tokens } => ObserveError::Surplus { layer, n_tokens },
        })
    }
}

impl Observer for RoutingObserver<'_> {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        node.site()
            .is_some_and(|(site, layer)| self.is_wanted(site, layer) && self.tally.shape(layer).is_some())
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, layer)) = node.site() else { return Ok(()) };
        let Some(shape) = self.tally.shape(layer) else { return Ok(()) };
        let used = shape.n_expert_used as usize;
        let layout = |what: String| ObserveError::Layout { node: node.name().to_owned(), what };
        let mut reading = match self.pending.remove(&layer) {
            // A later site of the same ubatch replaces what an earlier one gave; the same site again, or an earlier
            // one, begins the next ubatch.
            Some(earlier) if earlier.site < site => earlier,
            Some(complete) => {
                self.count(layer, &complete)?;
                complete
            }
            None => Reading { site, ids: Vec::new(), weights: Vec::new() },
        };
        reading.site = site;
        if site == Site::Topk {
            expect_columns(node, used)?;
            node.read_ids(used, &mut reading.ids)?;
            if self.tally.layers().next() == Some(layer) {
                self.ubatches.count += 1;
                let n_tokens = u32::try_from(reading.ids.len() / used).unwrap_or(u32::MAX);
                self.ubatches.largest = self.ubatches.largest.max(n_tokens);
            }
            reading.weights.clear();
        } else {
            node.read_floats(&mut reading.weights)?;
            if reading.weights.len() != reading.ids.len() {
                return Err(layout(format!(
                    "{} gate weights for {} ids",
                    reading.weights.len(),
                    reading.ids.len()
                )));
            }
        }
        // Which of the weights' nodes is the last is known from the second ubatch on.
        self.done = self.last_layer == Some(layer)
            && (!self.with_weights || self.last_site.get(&layer).is_some_and(|&last| last == site));
        self.pending.insert(layer, reading);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl WindowObserver for RoutingObserver<'_> {
    fn begin_batch(&mut self, parts: &[u32]) -> Result<(), ObserveError> {
        self.tally()?.begin_batch(parts);
        Ok(())
    }
}

/// A view of the selected ids is exactly as wide as the number of experts used.
fn expect_columns(ids: &Node<'_>, used: usize) -> Result<(), ObserveError> {
    let width = ids.dims()[0];
    if width == used {
        return Ok(());
    }
    Err(ObserveError::Layout {
        node: ids.name().to_owned(),
        what: format!("{width} experts are selected for a token where the model says {used}"),
    })
}
