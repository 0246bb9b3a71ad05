//! Which bytes of a tensor stay.

use std::fs::File;
use std::ops::Range;

use crate::gguf::{Model, Tensor};

/// The byte ranges of a tensor that the kept experts fill, in order; neighbours are one range.
///
/// `kept` ascends, and each expert has `slab_bytes` bytes. The tensor's size, which contains them all, fits a u64.
pub(super) fn of_experts(kept: &[u32], slab_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let slab = move |id: u32| u64::from(id) * slab_bytes..(u64::from(id) + 1) * slab_bytes;
    kept.chunk_by(|a, b| a.checked_add(1) == Some(*b)).map(move |run| {
        // A chunk has at least one element.
        slab(run[0]).start..slab(run[run.len() - 1]).end
    })
}

/// Ranges of a tensor as ranges of the file that holds it.
pub(super) fn in_file<'a>(
    model: &'a Model,
    tensor: &Tensor,
    runs: Vec<Range<u64>>,
) -> impl Iterator<Item = (&'a File, Range<u64>)> + use<'a> {
    let (file, start) = (&model.shards()[tensor.shard].file, tensor.file_offset);
    runs.into_iter().map(move |run| (file, start.saturating_add(run.start)..start.saturating_add(run.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_experts_make_one_range() {
        let runs = |kept: &[u32]| of_experts(kept, 10).collect::<Vec<_>>();
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[3, 9]), [30..40, 90..100]);
        assert_eq!(runs(&[0, 1, 2, 5, 7, 8]), [0..30, 50..60, 70..90]);
    }
}
