//! Tokens of a trace, as many as are held at once.

use super::{TraceError, TraceMeta};
use std::path::Path;

/// Stands where a layer has fewer candidates than others.
pub const NO_EXPERT: u16 = u16::MAX;

/// Whether a token was read or written by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Read: the tokens of a ubatch are computed together.
    Prefill,
    /// Written: tokens are computed one by one.
    Decode,
}

impl Phase {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        }
    }
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The text or conversation.
    pub session: u32,
    /// The turn of a conversation, from 0.
    pub turn: u32,
    /// Read or written.
    pub phase: Phase,
    /// The tokens that were computed together have the same number, and lie next to each other.
    pub ubatch: u64,
    /// Place in the context.
    pub position: u32,
    /// Its id in the vocabulary; -1 when unknown.
    pub token: i32,
}

/// Tokens in order, with the candidates of each layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The tokens.
    pub rows: Vec<Row>,
    /// `[row][layer][candidate]`: expert ids, best first; the first `n_expert_used` are selected. [`NO_EXPERT`] fills up.
    pub ids: Vec<u16>,
    /// `[row][layer][candidate]`: router values of the same experts; empty when the trace has none.
    pub values: Vec<f32>,
    /// `[row][layer]`: least router value of all experts; empty when the trace has none.
    pub z_min: Vec<f32>,
    /// `[row][layer]`: their mean.
    pub z_mean: Vec<f32>,
    /// `[row][layer]`: their standard deviation.
    pub z_std: Vec<f32>,
}

impl Batch {
    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.ids.clear();
        self.values.clear();
        self.z_min.clear();
        self.z_mean.clear();
        self.z_std.clear();
    }

    /// Bytes that the tokens take.
    pub fn bytes(&self) -> usize {
        let floats = self.values.len() + self.z_min.len() + self.z_mean.len() + self.z_std.len();
        self.rows.len() * size_of::<Row>() + self.ids.len() * 2 + floats * 4
    }

    /// Moves the tokens of `other` behind these.
    pub fn append(&mut self, other: &mut Batch) {
        self.rows.append(&mut other.rows);
        self.ids.append(&mut other.ids);
        self.values.append(&mut other.values);
        self.z_min.append(&mut other.z_min);
        self.z_mean.append(&mut other.z_mean);
        self.z_std.append(&mut other.z_std);
    }

    /// Splits the tokens from `at` on off.
    #[must_use]
    pub fn split_off(&mut self, at: usize, meta: &TraceMeta) -> Batch {
        let (ids, layers) = (meta.row_ids(), meta.layers.len());
        let floats = |list: &mut Vec<f32>, width: usize| {
            if list.is_empty() { Vec::new() } else { list.split_off(at * width) }
        };
        Batch {
            rows: self.rows.split_off(at),
            ids: self.ids.split_off(at * ids),
            values: floats(&mut self.values, ids),
            z_min: floats(&mut self.z_min, layers),
            z_mean: floats(&mut self.z_mean, layers),
            z_std: floats(&mut self.z_std, layers),
        }
    }

    /// Checks lengths, ids, that no token has an expert twice, and that router values are numbers. `first` is the number of the first row in the trace.
    pub(super) fn check(&self, meta: &TraceMeta, path: &Path, first: u64) -> Result<(), TraceError> {
        let bad = |row: usize, what: String| TraceError::Row {
            path: path.to_owned(),
            row: first + row as u64,
            what,
        };
        let (n, width, layers) = (self.rows.len(), meta.candidates as usize, meta.layers.len());
        let floats_fit = |list: &[f32], per_row: usize| list.is_empty() || list.len() == n * per_row;
        if self.ids.len() != n * meta.row_ids()
            || !floats_fit(&self.values, meta.row_ids())
            || ![&self.z_min, &self.z_mean, &self.z_std].iter().all(|list| floats_fit(list, layers))
        {
            return Err(bad(0, "its columns have different lengths".to_owned()));
        }
        let mut seen = [u64::MAX; super::meta::MAX_EXPERTS as usize];
        let mut stamp = 0;
        for (row, ids) in self.ids.chunks_exact(meta.row_ids().max(1)).enumerate() {
            for (layer, ids) in meta.layers.iter().zip(ids.chunks_exact(width)) {
                stamp += 1;
                let il = layer.layer;
                let used = layer.n_expert_used as usize;
                for (rank, &id) in ids.iter().enumerate() {
                    if id == NO_EXPERT && rank >= used {
                        continue;
                    }
                    if u32::from(id) >= layer.n_expert {
                        let what = format!(
                            "layer {il}: expert {id} is out of range (it has {} experts)",
                            layer.n_expert
                        );
                        return Err(bad(row, what));
                    }
                    if std::mem::replace(&mut seen[usize::from(id)], stamp) == stamp {
                        return Err(bad(row, format!("layer {il}: expert {id} is there twice")));
                    }
                }
            }
        }
        self.check_values(meta).map_err(|(row, what)| bad(row, what))
    }

    /// Checks that router values are finite, since nothing can be chosen by others: the first row where they are not.
    fn check_values(&self, meta: &TraceMeta) -> Result<(), (usize, String)> {
        let (width, layers) = (meta.candidates as usize, meta.layers.len());
        let place = |at: usize| (at / layers, meta.layers[at % layers].layer);
        let known = self.values.iter().zip(&self.ids).enumerate().filter(|(_, (_, id))| **id != NO_EXPERT);
        if let Some((at, (value, id))) = known.into_iter().find(|(_, (value, _))| !value.is_finite()) {
            let (row, layer) = place(at / width);
            return Err((row, format!("layer {layer}: the router value of expert {id} is {value}")));
        }
        for (name, list) in [("z_min", &self.z_min), ("z_mean", &self.z_mean), ("z_std", &self.z_std)] {
            if let Some(at) = list.iter().position(|value| !value.is_finite()) {
                let (row, layer) = place(at);
                return Err((row, format!("layer {layer}: {name} is {}", list[at])));
            }
        }
        Ok(())
    }
}
