//! From the tokens of a trace to requests: whole ubatches in prefill, single tokens in decode.

use super::ReplayError;
use crate::trace::{Batch, Phase, Row, TraceMeta};
use std::ops::Range;

/// Tokens of a ubatch, at most.
const MAX_UBATCH: usize = 1 << 14;

/// Tokens of a trace, with what each layer needs of them at once.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub(super) batch: Batch,
    pub(super) groups: Vec<Group>,
    /// Of each group and layer, the selected experts, each once, in order of first appearance.
    pub(super) experts: Vec<u16>,
    /// Where those of each group and layer begin, and one more.
    pub(super) begins: Vec<u32>,
}

/// Tokens that are computed together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) rows: Range<usize>,
    pub(super) phase: Phase,
    pub(super) session: u32,
    pub(super) turn: u32,
}

/// Makes chunks of batches that may begin and end within a ubatch.
#[derive(Debug)]
pub struct Steps {
    meta: TraceMeta,
    one_by_one: bool,
    pending: Batch,
    seen: Vec<u32>,
    stamp: u32,
}

impl Steps {
    /// For a trace of `meta`; `one_by_one` requests the tokens of prefill one by one too.
    pub fn new(meta: &TraceMeta, one_by_one: bool) -> Steps {
        let n = meta.layers.iter().map(|layer| layer.n_expert as usize).max().unwrap_or(0);
        Steps { meta: meta.clone(), one_by_one, pending: Batch::default(), seen: vec![0; n], stamp: 0 }
    }

    /// Takes the tokens of `batch`, and gives what is whole by now.
    ///
    /// # Errors
    /// When a ubatch is larger than any machine computes.
    pub fn add(&mut self, batch: &mut Batch) -> Result<Option<Chunk>, ReplayError> {
        self.pending.append(batch);
        let Some(last) = self.pending.rows.last().copied() else { return Ok(None) };
        let mut whole = self.pending.rows.len();
        if !self.is_alone(&last) {
            whole -= self.pending.rows.iter().rev().take_while(|row| together(row, &last)).count();
        }
        if self.pending.rows.len() - whole > MAX_UBATCH {
            return Err(ReplayError::LargeUbatch { ubatch: last.ubatch, limit: MAX_UBATCH });
        }
        if whole == 0 {
            return Ok(None);
        }
        let rest = self.pending.split_off(whole, &self.meta);
        let batch = std::mem::replace(&mut self.pending, rest);
        Ok(Some(self.chunk(batch)))
    }

    /// The last ubatch.
    pub fn finish(&mut self) -> Option<Chunk> {
        let batch = std::mem::take(&mut self.pending);
        (!batch.rows.is_empty()).then(|| self.chunk(batch))
    }

    fn is_alone(&self, row: &Row) -> bool {
        self.one_by_one || row.phase == Phase::Decode
    }

    fn chunk(&mut self, batch: Batch) -> Chunk {
        let mut groups = Vec::new();
        let mut begin = 0;
        while let Some(first) = batch.rows.get(begin) {
            let end = if self.is_alone(first) {
                begin + 1
            } else {
                begin + batch.rows[begin..].iter().take_while(|row| together(row, first)).count()
            };
            groups.push(Group {
                rows: begin..end,
                phase: first.phase,
                session: first.session,
                turn: first.turn,
            });
            begin = end;
        }
        let mut chunk = Chunk { batch, groups, experts: Vec::new(), begins: vec![0] };
        for group in &chunk.groups {
            for at in 0..self.meta.layers.len() {
                self.stamp = self.stamp.wrapping_add(1);
                if self.stamp == 0 {
                    self.seen.fill(0);
                    self.stamp = 1;
                }
                let used = self.meta.layers[at].n_expert_used as usize;
                for row in group.rows.clone() {
                    let place = (row * self.meta.layers.len() + at) * self.meta.candidates as usize;
                    for &id in &chunk.batch.ids[place..place + used] {
                        if std::mem::replace(&mut self.seen[usize::from(id)], self.stamp) != self.stamp {
                            chunk.experts.push(id);
                        }
                    }
                }
                chunk.begins.push(chunk.experts.len() as u32);
            }
        }
        chunk
    }
}

/// Whether two neighbours were computed together.
fn together(a: &Row, b: &Row) -> bool {
    a.phase == Phase::Prefill && b.phase == Phase::Prefill && a.ubatch == b.ubatch && a.session == b.session
}

impl Chunk {
    /// Experts that all layers need.
    pub fn accesses(&self) -> u64 {
        self.experts.len() as u64
    }

    /// The selected experts of a group in a layer.
    pub(super) fn experts_of(&self, group: usize, layer: usize, n_layers: usize) -> &[u16] {
        let at = group * n_layers + layer;
        &self.experts[self.begins[at] as usize..self.begins[at + 1] as usize]
    }
}
