//! The bytes of a pruned model, from the source to the outputs.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::hash_table::Remap;
use super::pace::Pace;
use super::{Cut, Progress, SliceError, runs};
use crate::gguf::{GgufError, Shard, Tensor};
use crate::moe::{ExpertLayer, FileShape};
use crate::sys::{Copier, CopyError, WholeFile};

/// Bytes of rows that are rewritten at once.
const ROWS: u64 = 1 << 20;

/// Refuses to go on once the flag is set.
pub(super) fn check_interrupt(interrupt: Option<&AtomicBool>) -> Result<(), SliceError> {
    match interrupt {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(SliceError::Interrupted),
        _ => Ok(()),
    }
}

/// What becomes of the data of a tensor.
#[derive(Clone, Copy)]
enum Job<'a> {
    /// Copied whole.
    Whole,
    /// The slabs of the kept experts.
    Slabs { slab_bytes: u64, kept: &'a [u32] },
    /// A table of ids, rewritten.
    Table { layer: &'a ExpertLayer, kept: &'a [u32] },
}

impl Job<'_> {
    /// The ranges of the tensor that are read, in order.
    fn runs(self, tensor: &Tensor) -> Vec<Range<u64>> {
        match self {
            Self::Slabs { slab_bytes, kept } => runs::of_experts(kept, slab_bytes).collect(),
            Self::Whole | Self::Table { .. } => std::iter::once(0..tensor.info.bytes()).collect(),
        }
    }
}

/// Writes files of a pruned model, and tells of the progress over all of them.
pub(super) struct Writer<'a> {
    cut: &'a Cut<'a>,
    interrupt: Option<&'a AtomicBool>,
    /// One for each tensor of the model.
    jobs: Vec<Job<'a>>,
    copier: Copier,
    done: u64,
    total: u64,
    progress: Progress<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        cut: &'a Cut<'a>,
        interrupt: Option<&'a AtomicBool>,
        shapes: &[FileShape],
        progress: Progress<'a>,
    ) -> Self {
        let mut jobs = vec![Job::Whole; cut.model.tensors().len()];
        for layer in &cut.experts.layers {
            let Some(kept) = cut.keep.get(&layer.layer).map(Vec::as_slice) else { continue };
            if kept.len() as u64 == u64::from(layer.n_expert) {
                continue;
            }
            for tensor in &layer.tensors {
                jobs[tensor.index] = Job::Slabs { slab_bytes: tensor.slab_bytes, kept };
            }
            if let Some(index) = layer.hash_table {
                jobs[index] = Job::Table { layer, kept };
            }
        }
        let total = shapes.iter().map(|shape| shape.layout.file_bytes()).sum();
        Self { cut, interrupt, jobs, copier: Copier::new(), done: 0, total, progress }
    }

    /// Writes one file: header, tensors. Padding is what a new file consists of: zeros.
    pub(super) fn write(&mut self, out: &WholeFile, shape: &FileShape) -> Result<(), SliceError> {
        let layout = &shape.layout;
        let mut pace = Pace::new(out.file(), self.data(shape));
        out.write_all_at(layout.header(), 0)?;
        self.advance(&mut pace, layout.data_offset())?;
        for (at, (index, info)) in shape.tensors.iter().copied().zip(layout.tensors()).enumerate() {
            let tensor = &self.cut.model.tensors()[index];
            let start = layout.data_offset() + info.offset;
            match self.jobs[index] {
                Job::Table { layer, kept } => {
                    self.rewrite_table((out, start), tensor, layer, kept, &mut pace)?;
                }
                job => self.copy_runs((out, start), tensor, &job.runs(tensor), &mut pace)?,
            }
            self.advance(&mut pace, layout.padding_after(at))?;
        }
        Ok(())
    }

    /// What will be read for a file, in that order.
    fn data(&self, shape: &FileShape) -> Vec<(&'a File, Range<u64>)> {
        let of_tensor = |index: usize| {
            let tensor = &self.cut.model.tensors()[index];
            runs::in_file(self.cut.model, tensor, self.jobs[index].runs(tensor))
        };
        shape.tensors.iter().copied().flat_map(of_tensor).collect()
    }

    fn advance(&mut self, pace: &mut Pace<'_>, bytes: u64) -> Result<(), SliceError> {
        self.done += bytes;
        pace.advance(bytes);
        (self.progress)(self.done, self.total);
        check_interrupt(self.interrupt)
    }

    /// Copies ranges of a tensor one behind the other.
    fn copy_runs(
        &mut self,
        (out, mut to): (&WholeFile, u64),
        tensor: &Tensor,
        runs: &[Range<u64>],
        pace: &mut Pace<'_>,
    ) -> Result<(), SliceError> {
        let from = &self.shard(tensor).file;
        for run in runs {
            let (position, len) = (tensor.file_offset.saturating_add(run.start), run.end - run.start);
            let (done, total, progress, interrupt) =
                (&mut self.done, self.total, &mut self.progress, self.interrupt);
            let mut step = |bytes| {
                *done += bytes;
                pace.advance(bytes);
                progress(*done, total);
                check_interrupt(interrupt).is_ok()
            };
            let copied = self.copier.copy((from, position), (out.file(), to), len, &mut step);
            copied.map_err(|error| self.explain(error, tensor, out))?;
            to += len;
        }
        Ok(())
    }

    fn explain(&self, error: CopyError, tensor: &Tensor, out: &WholeFile) -> SliceError {
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
        (out, to): (&WholeFile, u64),
        tensor: &Tensor,
        layer: &ExpertLayer,
        kept: &[u32],
        pace: &mut Pace<'_>,
    ) -> Result<(), SliceError> {
        let remap = Remap::new(kept, layer.n_expert);
        let row_bytes = 4 * u64::from(layer.n_used);
        let rows_at_once = (ROWS / row_bytes).max(1);
        let mut buffer = vec![0; (rows_at_once * row_bytes) as usize];
        let total = tensor.info.bytes();
        let mut at = 0;
        while at < total {
            let len = (total - at).min(buffer.len() as u64);
            let rows = &mut buffer[..len as usize];
            self.cut.model.read_exact_at(tensor, at, rows)?;
            remap.rewrite(rows, layer.n_used as usize).map_err(|bad| SliceError::HashTable {
                path: self.shard(tensor).path.clone(),
                tensor: tensor.info.name.clone(),
                token: at / row_bytes + bad.row as u64,
                id: bad.id,
                n_expert: layer.n_expert,
            })?;
            out.write_all_at(rows, to + at)?;
            at += len;
            self.advance(pace, len)?;
        }
        Ok(())
    }

    fn shard(&self, tensor: &Tensor) -> &'a Shard {
        &self.cut.model.shards()[tensor.shard]
    }
}
