//! The observer that records the routing of each token: its candidates, and what the router said of them.

use crate::llama::{Node, ObserveError, Observer, Site};
use crate::moe::{ExpertLayer, Groups};
use crate::trace::{Batch, NO_EXPERT, RouterValues, Row};
use crate::windows::WindowObserver;
use std::collections::{BTreeMap, VecDeque};

/// Reads the sorted experts of each token where they are sorted, and the values that they are sorted by where these are
/// computed: a backend may use the memory of one before the other is there.
///
/// Router values are the logits, with the router's bias where there is one. Where a bias is added for the selection alone,
/// or the graph names no logits, they are what is sorted.
pub struct TraceRecorder {
    layers: BTreeMap<u32, usize>,
    shapes: Vec<Shape>,
    width: usize,
    /// Tokens that are computed and not yet recorded, in order.
    expected: VecDeque<Row>,
    ubatch: u64,
    current: Vec<Reading>,
    running: bool,
    values: RouterValues,
    done: Batch,
}

/// What is read of a layer.
#[derive(Clone, Copy)]
struct Shape {
    layer: u32,
    n_expert: usize,
    n_expert_used: usize,
    candidates: usize,
}

/// What was read of a layer in the ubatch that is running.
#[derive(Clone, Default)]
struct Reading {
    /// `[token][candidate]`.
    ids: Vec<i32>,
    /// Candidates of a token.
    columns: usize,
    /// `[token][expert]`.
    values: Vec<f32>,
    has_values: bool,
}

impl TraceRecorder {
    /// A recorder of `layers` with up to `candidates` of each token.
    pub fn new<'l>(
        layers: impl IntoIterator<Item = &'l ExpertLayer>,
        groups: Option<Groups>,
        candidates: u32,
    ) -> TraceRecorder {
        let shape = |layer: &ExpertLayer| Shape {
            layer: layer.layer,
            n_expert: layer.n_expert as usize,
            n_expert_used: layer.n_expert_used as usize,
            candidates: candidates.clamp(layer.n_expert_used, layer.reachable(groups)) as usize,
        };
        let shapes: Vec<Shape> = layers.into_iter().map(shape).collect();
        TraceRecorder {
            layers: shapes.iter().enumerate().map(|(at, shape)| (shape.layer, at)).collect(),
            width: shapes.iter().map(|shape| shape.candidates).max().unwrap_or(0),
            expected: VecDeque::new(),
            ubatch: 0,
            current: vec![Reading::default(); shapes.len()],
            running: false,
            values: RouterValues::None,
            done: Batch::default(),
            shapes,
        }
    }

    /// Candidates of the layer that has most.
    pub fn candidates(&self) -> u32 {
        self.width as u32
    }

    /// What the router values are, once something was recorded.
    pub fn router_values(&self) -> RouterValues {
        self.values
    }

    /// The tokens that are computed next, in order; the recorder numbers their ubatches.
    pub fn expect(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.expected.extend(rows);
    }

    /// Moves what was recorded to `batch`.
    ///
    /// # Errors
    /// When the routing of the last ubatch cannot be right, or tokens are missing.
    pub fn take(&mut self, batch: &mut Batch) -> Result<(), ObserveError> {
        self.end_ubatch()?;
        if let Some(row) = self.expected.front() {
            let what = format!(
                "the routing of {} computed tokens was not shown, from position {} on",
                self.expected.len(),
                row.position
            );
            return Err(ObserveError::Layout { node: "ffn_moe_topk".into(), what });
        }
        batch.append(&mut self.done);
        Ok(())
    }

    /// Puts the tokens of the ubatch that has ended together.
    fn end_ubatch(&mut self) -> Result<(), ObserveError> {
        if !std::mem::replace(&mut self.running, false) {
            return Ok(());
        }
        let first = &self.current[0];
        let n_tokens = first.ids.len() / first.columns.max(1);
        for (shape, reading) in self.shapes.iter().zip(&self.current) {
            let found = reading.ids.len() / reading.columns.max(1);
            if found != n_tokens {
                let what =
                    format!("{found} tokens are routed, and {n_tokens} in layer {}", self.shapes[0].layer);
                return Err(ObserveError::Layout { node: format!("ffn_moe_topk-{}", shape.layer), what });
            }
        }
        if n_tokens > self.expected.len() {
            let n_tokens = self.expected.len();
            return Err(ObserveError::Surplus { layer: self.shapes[0].layer, n_tokens });
        }
        for token in 0..n_tokens {
            let Some(row) = self.expected.pop_front() else { break };
            self.done.rows.push(Row { ubatch: self.ubatch, ..row });
            for at in 0..self.shapes.len() {
                self.push(at, token)?;
            }
        }
        self.ubatch += 1;
        self.current.iter_mut().for_each(|reading| *reading = Reading::default());
        Ok(())
    }

    fn push(&mut self, at: usize, token: usize) -> Result<(), ObserveError> {
        let (shape, reading) = (self.shapes[at], &self.current[at]);
        let layer = shape.layer;
        let ids = &reading.ids[token * reading.columns..(token + 1) * reading.columns];
        let values =
            reading.has_values.then(|| &reading.values[token * shape.n_expert..(token + 1) * shape.n_expert]);
        let done = &mut self.done;
        for (rank, &id) in ids.iter().enumerate() {
            let known = usize::try_from(id).ok().filter(|id| *id < shape.n_expert);
            let Some(expert) = known else {
                return Err(ObserveError::ExpertOutOfRange {
                    layer,
                    token,
                    id,
                    n_expert: shape.n_expert as u32,
                });
            };
            if ids[..rank].contains(&id) {
                return Err(ObserveError::ExpertTwice { layer, token, id: expert as u32 });
            }
            done.ids.push(expert as u16);
            done.values.push(values.map_or(f32::NAN, |values| values[expert]));
        }
        let missing = self.width - ids.len();
        done.ids.extend(std::iter::repeat_n(NO_EXPERT, missing));
        done.values.extend(std::iter::repeat_n(f32::NAN, missing));
        let [min, mean, std] = values.map_or([f32::NAN; 3], statistics);
        done.z_min.push(min);
        done.z_mean.push(mean);
        done.z_std.push(std);
        Ok(())
    }

    fn reading(&mut self, site: Site, at: usize) -> Result<&mut Reading, ObserveError> {
        let reading = &self.current[at];
        // A site that was seen already begins the next ubatch.
        let again = match site {
            Site::Logits | Site::Probs => reading.has_values || !reading.ids.is_empty(),
            Site::Argsort | Site::Topk => !reading.ids.is_empty(),
            _ => !reading.ids.is_empty(),
        };
        if again {
            self.end_ubatch()?;
        }
        self.running = true;
        Ok(&mut self.current[at])
    }
}

/// Least, mean and standard deviation.
fn statistics(values: &[f32]) -> [f32; 3] {
    let n = values.len().max(1) as f64;
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / n;
    let variance = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / n;
    [min, mean as f32, variance.sqrt() as f32]
}

impl Observer for TraceRecorder {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let Some((site, layer)) = node.site() else { return false };
        let Some(&at) = self.layers.get(&layer) else { return false };
        let reading = &self.current[at];
        // What a layer has shown already belongs to the ubatch before when it is shown again.
        let complete = !reading.ids.is_empty();
        match site {
            Site::Logits | Site::LogitsBiased | Site::ProbsBiased => true,
            Site::Probs => complete || !reading.has_values,
            // A second sort in the same layer is one of something else.
            Site::Argsort => !complete || !reading.has_values,
            Site::Topk => !complete,
            _ => false,
        }
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((site, layer)) = node.site() else { return Ok(()) };
        let Some(&at) = self.layers.get(&layer) else { return Ok(()) };
        let shape = self.shapes[at];
        let layout = |what: String| ObserveError::Layout { node: node.name().to_owned(), what };
        match site {
            Site::Argsort | Site::Topk => {
                let columns = if site == Site::Argsort { shape.candidates } else { shape.n_expert_used };
                let width = if site == Site::Argsort { shape.n_expert } else { shape.n_expert_used };
                if node.dims()[0] != width {
                    return Err(layout(format!("{} experts where {width} are expected", node.dims()[0])));
                }
                let reading = self.reading(site, at)?;
                reading.columns = columns;
                node.read_ids(columns, &mut reading.ids)
            }
            _ => {
                if node.dims()[0] != shape.n_expert {
                    let n = shape.n_expert;
                    return Err(layout(format!("{} values where {n} are expected", node.dims()[0])));
                }
                let reading = self.reading(site, at)?;
                node.read_floats(&mut reading.values)?;
                reading.has_values = true;
                let sorted = matches!(site, Site::Probs | Site::ProbsBiased);
                self.values = match self.values {
                    RouterValues::Selection => RouterValues::Selection,
                    _ if sorted => RouterValues::Selection,
                    _ => RouterValues::Logits,
                };
                Ok(())
            }
        }
    }
}

impl WindowObserver for TraceRecorder {
    fn begin_batch(&mut self, _parts: &[u32]) -> Result<(), ObserveError> {
        self.end_ubatch()
    }
}
