//! The bytes of tensors.

use super::super::behind::{NotRead, Reader};
use super::super::fate::TensorFate;
use super::super::hash_table::Remap;
use super::super::readahead::ReadAhead;
use super::super::runs;
use super::VerifyError;
use super::difference::{Collector, Where};
use crate::gguf::{GgufError, Model, ReadAt, Shard, Tensor, TensorInfo};
use crate::moe::{ExpertLayer, Experts, KeptExperts, PrunedShape};
use crate::progress::{Interrupt, Progress};

/// Bytes that are read of each model at once.
const CHUNK: usize = 4 << 20;

/// Bytes from which on two threads read the two models: below, starting one takes longer than it saves.
const IN_PARALLEL: usize = 1 << 20;

/// Bytes that are read of each at once where one of them was just written: what is not read from the disk is in the
/// page cache, and what is read here stays in the processor's.
const CHUNK_BEHIND: usize = 256 << 10;

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) tensors: u64,
    /// Experts of tensors.
    pub(super) slabs: u64,
    pub(super) bytes: u64,
    /// Tables of expert ids that were rewritten.
    pub(super) tables: u64,
}

/// Reads both models side by side, each once.
pub(super) struct Comparison<'a, 'p> {
    base: &'a Model,
    pruned: &'a Model,
    fates: Vec<TensorFate<'a>>,
    direct: bool,
    /// Whom to ask for what is still being written.
    behind: Option<Reader>,
    chunk_of_base: Vec<u8>,
    chunk_of_pruned: Vec<u8>,
    ahead: [ReadAhead<'a>; 2],
    counts: Counts,
    done: u64,
    total: u64,
    progress: &'a mut (dyn Progress + 'p),
    interrupt: Interrupt,
}

impl<'a, 'p> Comparison<'a, 'p> {
    pub(super) fn new(
        base: &'a Model,
        pruned: &'a Model,
        experts: &'a Experts,
        kept: &'a KeptExperts,
        direct: bool,
        behind: Option<Reader>,
        (progress, interrupt): (&'a mut (dyn Progress + 'p), Interrupt),
    ) -> Self {
        let fates = TensorFate::of_all(base, experts, kept);
        let total = pruned.tensors().iter().map(|tensor| tensor.info.bytes()).sum();
        let chunk = if behind.is_some() { CHUNK_BEHIND } else { CHUNK };
        Self {
            base,
            pruned,
            fates,
            direct,
            behind,
            chunk_of_base: vec![0; chunk],
            chunk_of_pruned: vec![0; chunk],
            ahead: [ReadAhead::new(Vec::new()), ReadAhead::new(Vec::new())],
            counts: Counts::default(),
            done: 0,
            total,
            progress,
            interrupt,
        }
    }

    /// What was compared.
    pub(super) fn counts(&self) -> Counts {
        Counts { bytes: self.done, ..self.counts }
    }

    /// Compares every tensor that has the shape that it should.
    pub(super) fn run(&mut self, shape: &PrunedShape, found: &mut Collector) -> Result<(), VerifyError> {
        let (base, pruned) = (self.base, self.pruned);
        let alike = |(&index, expected): (&usize, &TensorInfo)| {
            let of_base = &base.tensors()[index];
            let of_pruned = pruned.tensor(&expected.name)?;
            let same_shape = of_pruned.info.ty == expected.ty && of_pruned.info.dims == expected.dims;
            same_shape.then_some((self.fates[index], of_base, of_pruned))
        };
        let pairs: Vec<_> = shape.sources.iter().zip(&shape.tensors).filter_map(alike).collect();
        let of_base =
            pairs.iter().flat_map(|(fate, tensor, _)| runs::in_file(base, tensor, fate.runs(tensor)));
        let of_pruned = pairs.iter().flat_map(|(_, _, tensor)| {
            runs::in_file(pruned, tensor, std::iter::once(0..tensor.info.bytes()).collect())
        });
        // What is not written yet cannot be read ahead.
        let of_pruned = if self.behind.is_some() { Vec::new() } else { of_pruned.collect() };
        self.ahead = [ReadAhead::new(of_base.collect()), ReadAhead::new(of_pruned)];
        for (fate, of_base, of_pruned) in pairs {
            self.counts.tensors += 1;
            match fate {
                TensorFate::Whole => self.compare_whole(of_base, of_pruned, found)?,
                TensorFate::Slabs { slab_bytes, kept } => {
                    self.compare_slabs(of_base, of_pruned, slab_bytes, kept, found)?;
                }
                TensorFate::Table { layer, kept } => {
                    self.compare_table(of_base, of_pruned, layer, kept, found)?
                }
            }
            self.check_padding(of_pruned, found)?;
        }
        Ok(())
    }

    /// Bytes that are compared at once where so many are left.
    fn chunk_len(&self, left: u64) -> usize {
        let chunk = self.chunk_of_base.len();
        usize::try_from(left).map_or(chunk, |left| left.min(chunk))
    }

    /// Reads `len` bytes of both tensors and tells whether they are the same.
    fn same(&mut self, a: (&Tensor, u64), b: (&Tensor, u64), len: usize) -> Result<bool, VerifyError> {
        let (chunk_a, chunk_b) = (&mut self.chunk_of_base[..len], &mut self.chunk_of_pruned[..len]);
        let (base, pruned) = (self.base, self.pruned);
        if let Some(behind) = &mut self.behind {
            let at = b.0.file_offset.saturating_add(b.1);
            let got = read_behind(behind, &pruned.shards()[b.0.shard], b.0, at, chunk_b)?;
            if got < len {
                let (path, tensor) = (pruned.shards()[b.0.shard].path.clone(), b.0.info.name.clone());
                return Err(GgufError::FileShrank { path, tensor, position: at + got as u64 }.into());
            }
            base.read_exact_at(a.0, a.1, chunk_a)?;
        } else if len >= IN_PARALLEL {
            std::thread::scope(|scope| {
                let of_base = scope.spawn(|| base.read_exact_at(a.0, a.1, chunk_a));
                pruned.read_exact_at(b.0, b.1, chunk_b)?;
                of_base.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })?;
        } else {
            base.read_exact_at(a.0, a.1, chunk_a)?;
            pruned.read_exact_at(b.0, b.1, chunk_b)?;
        }
        self.done += len as u64;
        self.ahead.iter_mut().for_each(|ahead| ahead.advance(len as u64));
        let same = chunk_a == chunk_b;
        self.progress.update(self.done, self.total);
        self.interrupt.check()?;
        Ok(same)
    }

    /// Position within the chunks of the first byte that differs, from `start` on.
    fn first_difference(&self, start: usize, end: usize) -> Option<usize> {
        let pairs = self.chunk_of_base[start..end].iter().zip(&self.chunk_of_pruned[start..end]);
        pairs.into_iter().position(|(a, b)| a != b).map(|at| start + at)
    }

    fn compare_whole(&mut self, a: &Tensor, b: &Tensor, found: &mut Collector) -> Result<(), VerifyError> {
        let (bytes, mut at, mut differs) = (b.info.bytes(), 0, false);
        while at < bytes {
            let len = self.chunk_len(bytes - at);
            if !self.same((a, at), (b, at), len)? && !differs {
                differs = true;
                let byte = at + self.first_difference(0, len).unwrap_or(0) as u64;
                found.add(Where::Byte { tensor: a.info.name.clone(), byte }, DIFFERS);
            }
            at += len as u64;
        }
        Ok(())
    }

    fn compare_slabs(
        &mut self,
        a: &Tensor,
        b: &Tensor,
        slab_bytes: u64,
        kept: &[u32],
        found: &mut Collector,
    ) -> Result<(), VerifyError> {
        self.counts.slabs += kept.len() as u64;
        // The last expert of the pruned model that was found to differ: each counts once.
        let mut last = None;
        let mut at = 0;
        for run in runs::of_experts(kept, slab_bytes) {
            let mut from = run.start;
            while from < run.end {
                let len = self.chunk_len(run.end - from);
                if !self.same((a, from), (b, at), len)? {
                    let mut start = 0;
                    while let Some(differs) = self.first_difference(start, len) {
                        let position = at + differs as u64;
                        let (slab, byte) = (position / slab_bytes, position % slab_bytes);
                        if last != Some(slab) {
                            last = Some(slab);
                            // Positions lie within the kept experts.
                            let (expert, pruned_expert) = (kept[slab as usize], slab as u32);
                            let tensor = a.info.name.clone();
                            found.add(Where::Slab { tensor, expert, pruned_expert, byte }, DIFFERS);
                        }
                        let rest_of_slab = slab_bytes - byte;
                        start = differs.saturating_add(usize::try_from(rest_of_slab).unwrap_or(len)).min(len);
                    }
                }
                from += len as u64;
                at += len as u64;
            }
        }
        Ok(())
    }

    fn compare_table(
        &mut self,
        a: &Tensor,
        b: &Tensor,
        layer: &ExpertLayer,
        kept: &[u32],
        found: &mut Collector,
    ) -> Result<(), VerifyError> {
        self.counts.tables += 1;
        let remap = Remap::new(kept, layer.n_expert);
        let row_bytes = 4 * layer.n_expert_used as usize;
        let chunk = (self.chunk_of_base.len() / row_bytes).max(1) * row_bytes;
        // A row may be longer than what is read at once elsewhere.
        for buffer in [&mut self.chunk_of_base, &mut self.chunk_of_pruned] {
            buffer.resize(buffer.len().max(chunk), 0);
        }
        let (bytes, mut at) = (b.info.bytes(), 0);
        while at < bytes {
            let len = chunk.min(self.chunk_len(bytes - at));
            self.same((a, at), (b, at), len)?;
            let rows = self.chunk_of_base[..len].chunks_exact_mut(row_bytes);
            for (row, (before, after)) in rows.zip(self.chunk_of_pruned.chunks_exact(row_bytes)).enumerate() {
                if !remap.is_true(before, after, self.direct) {
                    let token = (at / row_bytes as u64) + row as u64;
                    let place = Where::Token { tensor: a.info.name.clone(), token };
                    found.add(place, "goes to other experts than the cut sends it to");
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    fn check_padding(&mut self, tensor: &Tensor, found: &mut Collector) -> Result<(), VerifyError> {
        let pruned = self.pruned;
        let shard = &pruned.shards()[tensor.shard];
        let end = tensor.file_offset.saturating_add(tensor.info.bytes());
        // Alignments are u32.
        let padding = end.div_ceil(shard.header.alignment) * shard.header.alignment - end;
        let mut left = padding;
        let mut chunk = [0; 4096];
        while left > 0 {
            let part = &mut chunk[..left.min(4096) as usize];
            let at = end + padding - left;
            let got = match &mut self.behind {
                Some(behind) => read_behind(behind, shard, tensor, at, part)?,
                None => shard.file.read_full_at(part, at).map_err(|error| unread(shard, tensor, error))?,
            };
            if part[..got].iter().any(|&byte| byte != 0) {
                found.add(Where::Padding { tensor: tensor.info.name.clone() }, "is not zero");
                break;
            }
            if got < part.len() {
                // A file that ends before its last padding: its size says so.
                break;
            }
            left -= got as u64;
        }
        Ok(())
    }
}

/// Reads of a file that is still being written.
fn read_behind(
    behind: &mut Reader,
    shard: &Shard,
    tensor: &Tensor,
    at: u64,
    buffer: &mut [u8],
) -> Result<usize, VerifyError> {
    behind.read(tensor.shard, at, buffer).map_err(|error| match error {
        NotRead::Abandoned => VerifyError::Interrupted,
        NotRead::Failed(error) => unread(shard, tensor, error).into(),
    })
}

fn unread(shard: &Shard, tensor: &Tensor, error: std::io::Error) -> GgufError {
    let what = format!("tensor {:?} and what pads it", tensor.info.name);
    GgufError::Read { path: shard.path.clone(), what, error }
}

const DIFFERS: &str = "differs from the base";
