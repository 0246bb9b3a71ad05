//! The bytes of a pruned model, from the source to the outputs.

use std::fs::File;
use std::ops::Range;

use super::behind::Frontier;
use super::fate::TensorFate;
use super::hash_table::Remap;
use super::readahead::IoHints;
use super::{Cut, SliceError, runs};
use crate::gguf::{GgufError, Shard, Tensor};
use crate::moe::{ExpertLayer, FileShape};
use crate::progress::{Interrupt, Progress};
use crate::sys::{AtomicFile, Copier, CopyError};

/// Bytes of rows that are rewritten at once.
const ROWS: u64 = 1 << 20;

/// Writes files of a pruned model, and tells of the progress over all of them.
pub(super) struct Writer<'a, 'p> {
    cut: &'a Cut<'a>,
    interrupt: Interrupt,
    /// One for each tensor of the model.
    fates: Vec<TensorFate<'a>>,
    copier: Copier,
    done: u64,
    total: u64,
    progress: &'a mut (dyn Progress + 'p),
    behind: Option<&'a Frontier<'a>>,
}

impl<'a, 'p> Writer<'a, 'p> {
    pub(super) fn new(
        cut: &'a Cut<'a>,
        interrupt: Interrupt,
        shapes: &[FileShape],
        progress: &'a mut (dyn Progress + 'p),
        behind: Option<&'a Frontier<'a>>,
    ) -> Self {
        let fates = TensorFate::of_all(cut.model, cut.experts, cut.keep);
        let total = shapes.iter().map(|shape| shape.layout.file_bytes()).sum();
        Self { cut, interrupt, fates, copier: Copier::new(), done: 0, total, progress, behind }
    }

    /// Writes the tensors of the output with this number. Its header is there already, and padding is what a new file
    /// consists of: zeros.
    pub(super) fn write(
        &mut self,
        number: usize,
        out: &'a AtomicFile,
        shape: &FileShape,
    ) -> Result<(), SliceError> {
        let layout = &shape.layout;
        let behind = self.behind.map(|frontier| (frontier, number));
        let mut hints = IoHints::new(out.file(), self.data(shape), behind);
        self.advance(&mut hints, layout.data_offset())?;
        for (at, (index, info)) in shape.tensors.iter().copied().zip(layout.tensors()).enumerate() {
            let tensor = &self.cut.model.tensors()[index];
            let start = layout.data_offset() + info.offset;
            match self.fates[index] {
                TensorFate::Table { layer, kept } => {
                    self.rewrite_table((out, start), tensor, layer, kept, &mut hints)?;
                }
                fate => self.copy_runs((out, start), tensor, &fate.runs(tensor), &mut hints)?,
            }
            self.advance(&mut hints, layout.padding_after(at))?;
        }
        Ok(())
    }

    /// What will be read for a file, in that order.
    fn data(&self, shape: &FileShape) -> Vec<(&'a File, Range<u64>)> {
        let of_tensor = |index: usize| {
            let tensor = &self.cut.model.tensors()[index];
            runs::in_file(self.cut.model, tensor, self.fates[index].runs(tensor))
        };
        shape.tensors.iter().copied().flat_map(of_tensor).collect()
    }

    fn advance(&mut self, hints: &mut IoHints<'_>, bytes: u64) -> Result<(), SliceError> {
        self.done += bytes;
        self.progress.update(self.done, self.total);
        hints.advance(bytes);
        Ok(self.interrupt.check()?)
    }

    /// Copies ranges of a tensor one behind the other.
    fn copy_runs(
        &mut self,
        (out, mut to): (&AtomicFile, u64),
        tensor: &Tensor,
        runs: &[Range<u64>],
        hints: &mut IoHints<'_>,
    ) -> Result<(), SliceError> {
        let from = &self.shard(tensor).file;
        for run in runs {
            let (position, len) = (tensor.file_offset.saturating_add(run.start), run.end - run.start);
            let (done, total, progress, interrupt) =
                (&mut self.done, self.total, &mut self.progress, self.interrupt);
            let mut step = |bytes| {
                *done += bytes;
                progress.update(*done, total);
                hints.advance(bytes);
                !interrupt.is_set()
            };
            let copied = self.copier.copy((from, position), (out.file(), to), len, &mut step);
            copied.map_err(|error| self.explain(error, tensor, out))?;
            to += len;
        }
        Ok(())
    }

    fn explain(&self, error: CopyError, tensor: &Tensor, out: &AtomicFile) -> SliceError {
        let path = self.shard(tensor).path.clone();
        let name = tensor.info.name.clone();
        match error {
            CopyError::Read { error, .. } => {
                GgufError::Read { path, what: format!("tensor {name:?}"), error }.into()
            }
            CopyError::Ended { at } => GgufError::FileShrank { path, tensor: name, position: at }.into(),
            CopyError::Write { error, .. } => out.write_error(error).into(),
            CopyError::Stopped => SliceError::Interrupted,
        }
    }

    fn rewrite_table(
        &mut self,
        (out, to): (&AtomicFile, u64),
        tensor: &Tensor,
        layer: &ExpertLayer,
        kept: &[u32],
        hints: &mut IoHints<'_>,
    ) -> Result<(), SliceError> {
        let remap = Remap::new(kept, layer.n_expert);
        let row_bytes = 4 * u64::from(layer.n_expert_used);
        let rows_at_once = (ROWS / row_bytes).max(1);
        let mut buffer = vec![0; (rows_at_once * row_bytes) as usize];
        let total = tensor.info.bytes();
        let mut at = 0;
        while at < total {
            let len = (total - at).min(buffer.len() as u64);
            let rows = &mut buffer[..len as usize];
            self.cut.model.read_exact_at(tensor, at, rows)?;
            remap.rewrite(rows, layer.n_expert_used as usize).map_err(|bad| SliceError::HashTable {
                path: self.shard(tensor).path.clone(),
                tensor: tensor.info.name.clone(),
                token: at / row_bytes + bad.row as u64,
                id: bad.id,
                n_expert: layer.n_expert,
            })?;
            out.write_all_at(rows, to + at)?;
            at += len;
            self.advance(hints, len)?;
        }
        Ok(())
    }

    fn shard(&self, tensor: &Tensor) -> &'a Shard {
        &self.cut.model.shards()[tensor.shard]
    }
}
