//! The observer that reads how strong the outputs of the selected experts are.

use super::norm_rows::{Behind, Rows, row};
use super::tally::LayerShape;
use crate::llama::{Node, ObserveError, Observer, Site};
use crate::usage::{ActivationSums, ExactActivation};
use crate::windows::{WindowObserver, for_rows};
use std::collections::BTreeMap;

/// Elements from which on several threads are worth their start.
const SHARED: usize = 1 << 20;

/// Sums the norms of the experts' outputs, for each part of the texts apart.
///
/// `ffn_moe_weighted-<layer>` `[n_embd, n_expert_used, n_tokens]` is g · f, so ‖f‖ is its norm over |g|. Where a model
/// weights the inputs (llama4), the outputs themselves are what the experts contribute: they stand for g · f there.
pub struct NormsObserver {
    layers: BTreeMap<u32, NormLayer>,
    weights_inputs: bool,
    threads: usize,
    batch: Vec<u32>,
    /// Computes the norms of outputs that lie in a device's memory, once there are such.
    behind: Option<Behind>,
}

struct NormLayer {
    shape: LayerShape,
    /// One entry a part: all batches before the running one, added up without rounding.
    sums: Vec<ExactActivation>,
    /// The running batch.
    parts: Vec<ActivationSums>,
    /// Tokens of the running batch that were summed.
    seen: usize,
    ids: Vec<i32>,
    weights: Vec<f32>,
    /// The site of the final gate weights, and of the outputs: the last that the graph has, known once a ubatch has gone by.
    last: BTreeMap<Family, Site>,
    /// The latest of the ubatch that is running.
    latest: BTreeMap<Family, Site>,
    /// Norm and greatest element of each row, as the latest reading of the outputs gave them.
    rows: Rows,
}

/// Which of the sites replace each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Weights,
    Outputs,
}

impl NormsObserver {
    /// An observer of layers with the given shapes, for `n_parts` parts.
    pub fn new(
        shapes: &BTreeMap<u32, LayerShape>,
        n_parts: usize,
        architecture: &str,
        threads: usize,
    ) -> Self {
        let layer = |shape: &LayerShape| NormLayer {
            shape: *shape,
            sums: vec![ExactActivation::zero(shape.n_expert as usize); n_parts],
            parts: vec![ActivationSums::zero(shape.n_expert as usize); n_parts],
            seen: 0,
            ids: Vec::new(),
            weights: Vec::new(),
            last: BTreeMap::new(),
            latest: BTreeMap::new(),
            rows: Rows::Ready(Vec::new()),
        };
        NormsObserver {
            layers: shapes.iter().map(|(&il, shape)| (il, layer(shape))).collect(),
            weights_inputs: architecture == "llama4",
            threads,
            batch: Vec::new(),
            behind: None,
        }
    }

    /// The sums of each layer, one entry a part.
    ///
    /// # Errors
    /// When what the last ubatch gave is bad.
    pub fn finish(mut self) -> Result<BTreeMap<u32, Vec<ExactActivation>>, ObserveError> {
        self.flush()?;
        self.layers.values_mut().for_each(NormLayer::end_batch);
        Ok(self.layers.into_iter().map(|(il, layer)| (il, layer.sums)).collect())
    }

    fn family(&self, site: Site) -> Option<Family> {
        match site {
            Site::Weights | Site::WeightsSoftmax | Site::WeightsNorm | Site::WeightsScaled => {
                Some(Family::Weights)
            }
            Site::Weighted if !self.weights_inputs => Some(Family::Outputs),
            Site::Down | Site::DownScaled | Site::DownBiased if self.weights_inputs => Some(Family::Outputs),
            _ => None,
        }
    }

    /// Adds what the last ubatch of every layer gave.
    fn flush(&mut self) -> Result<(), ObserveError> {
        let (batch, weights_inputs) = (&self.batch, self.weights_inputs);
        self.layers.iter_mut().try_for_each(|(&il, layer)| layer.add(il, batch, weights_inputs))
    }
}

impl NormLayer {
    /// Adds the running batch to those before it.
    fn end_batch(&mut self) {
        if std::mem::take(&mut self.seen) == 0 {
            return;
        }
        for (sums, batch) in self.sums.iter_mut().zip(&mut self.parts) {
            sums.add(batch);
            *batch = ActivationSums::zero(batch.norm.len());
        }
    }

    /// Adds the tokens of the ubatch that was read.
    fn add(&mut self, il: u32, batch: &[u32], weights_inputs: bool) -> Result<(), ObserveError> {
        let used = self.shape.n_expert_used as usize;
        let layout = |what: String| ObserveError::Layout { node: format!("ffn_moe_weighted-{il}"), what };
        let rows = self.rows.take().ok_or_else(|| layout("the thread that sums it has ended".into()))?;
        let n_tokens = rows.len() / used.max(1);
        if n_tokens == 0 {
            return Ok(());
        }
        if self.ids.len() != rows.len() || self.weights.len() != rows.len() {
            let (rows, ids, weights) = (rows.len(), self.ids.len(), self.weights.len());
            return Err(layout(format!("{rows} outputs for {ids} ids and {weights} gate weights")));
        }
        let end = self.seen + n_tokens;
        let parts = batch.get(self.seen..end);
        let parts = parts.ok_or(ObserveError::Surplus { layer: il, n_tokens: batch.len() })?;
        for (at, row) in rows.iter().enumerate() {
            let (token, id) = (at / used, self.ids[at]);
            let expert = usize::try_from(id).ok().filter(|&id| id < self.shape.n_expert as usize);
            let expert = expert.ok_or(ObserveError::ExpertOutOfRange {
                layer: il,
                token,
                id,
                n_expert: self.shape.n_expert,
            })?;
            let norm = row.square.sqrt();
            if !norm.is_finite() {
                let expert = expert as u32;
                return Err(ObserveError::OutputNotFinite { layer: il, token, expert });
            }
            let weight = f64::from(self.weights[at]).abs();
            // An expert whose weight is nothing contributes nothing, and its output cannot be told.
            let scale = if weights_inputs { 1.0 } else { weight };
            if scale == 0.0 {
                continue;
            }
            let sums = &mut self.parts[parts[token] as usize];
            let output = norm / scale;
            sums.norm[expert] += output;
            sums.norm_squared[expert] += output * output;
            sums.weighted_norm[expert] += norm;
            sums.max[expert] = sums.max[expert].max(f64::from(row.max) / scale);
        }
        self.seen = end;
        self.last = std::mem::take(&mut self.latest);
        Ok(())
    }
}

impl Observer for NormsObserver {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let Some((site, il)) = node.site() else { return false };
        let family = self.family(site);
        let Some(layer) = self.layers.get(&il) else { return false };
        match family {
            Some(family) => layer.last.get(&family).is_none_or(|&last| last == site),
            None => site == Site::Topk,
        }
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, il)) = node.site() else { return Ok(()) };
        let family = self.family(site);
        let (batch, weights_inputs) = (&self.batch, self.weights_inputs);
        let Some(layer) = self.layers.get_mut(&il) else { return Ok(()) };
        match family {
            // The selected ids begin a ubatch.
            None => {
                layer.add(il, batch, weights_inputs)?;
                node.read_ids(layer.shape.n_expert_used as usize, &mut layer.ids)?;
                layer.weights.clear();
            }
            Some(Family::Weights) => {
                layer.latest.insert(Family::Weights, site);
                node.read_floats(&mut layer.weights)?;
            }
            Some(Family::Outputs) => {
                layer.latest.insert(Family::Outputs, site);
                let width = node.dims()[0].max(1);
                layer.rows = match node.floats()? {
                    Some(values) => {
                        let threads = if values.len() < SHARED { 1 } else { self.threads };
                        let row = |at| row(&values[at * width..(at + 1) * width]);
                        Rows::Ready(for_rows(values.len() / width, threads, row))
                    }
                    None => {
                        let threads = self.threads;
                        let behind = self.behind.get_or_insert_with(|| Behind::new(threads));
                        let mut values = behind.buffer(node.dims().iter().product());
                        node.read_floats(&mut values)?;
                        behind.submit(values, width)
                    }
                };
            }
        }
        Ok(())
    }
}

impl WindowObserver for NormsObserver {
    fn begin_batch(&mut self, parts: &[u32]) -> Result<(), ObserveError> {
        self.flush()?;
        self.batch.clear();
        self.batch.extend_from_slice(parts);
        self.layers.values_mut().for_each(NormLayer::end_batch);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::norm_rows::Row;
    use super::*;

    #[test]
    fn sums_go_to_the_expert_and_the_part_of_each_token() {
        let shape = LayerShape { n_expert: 4, n_expert_used: 2 };
        let mut observer = NormsObserver::new(&BTreeMap::from([(3, shape)]), 2, "qwen3moe", 1);
        observer.begin_batch(&[0, 1]).unwrap();
        let layer = observer.layers.get_mut(&3).unwrap();
        layer.ids = vec![1, 3, 1, 0];
        layer.weights = vec![0.5, 0.25, 0.5, 0.0];
        layer.rows = Rows::Ready(
            [1.0, 2.0, 3.0, 0.0].map(|norm| Row { square: norm * norm, max: norm as f32 }).to_vec(),
        );
        let sums: Vec<_> = observer.finish().unwrap()[&3].iter().map(ExactActivation::rounded).collect();
        assert_eq!(sums[0].norm, [0.0, 2.0, 0.0, 8.0]);
        assert_eq!(sums[0].norm_squared, [0.0, 4.0, 0.0, 64.0]);
        assert_eq!(sums[0].weighted_norm, [0.0, 1.0, 0.0, 2.0]);
        assert_eq!(sums[1].norm, [0.0, 6.0, 0.0, 0.0], "a weight of nothing tells nothing");
        assert_eq!(sums[1].max, [0.0, 6.0, 0.0, 0.0]);
    }

    #[test]
    fn an_output_that_is_no_number_names_layer_and_expert() {
        let shape = LayerShape { n_expert: 4, n_expert_used: 1 };
        let mut observer = NormsObserver::new(&BTreeMap::from([(3, shape)]), 1, "qwen3moe", 1);
        observer.begin_batch(&[0]).unwrap();
        let layer = observer.layers.get_mut(&3).unwrap();
        (layer.ids, layer.weights) = (vec![2], vec![0.5]);
        // As it comes from a device.
        layer.rows = Behind::new(1).submit(vec![1.0, f32::NAN], 2);
        let told = observer.finish().unwrap_err().to_string();
        assert!(told.contains("layer 3") && told.contains("expert 2"), "{told}");
    }
}
