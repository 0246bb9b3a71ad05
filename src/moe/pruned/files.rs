//! How the tensors of a pruned model are shared out to files.

use std::ops::Range;

use super::PrunedError;
use crate::gguf::{
    ALIGNMENT_KEY, CURRENT_VERSION, GgufError, Layout, Metadata, OwnedValue, SPLIT_COUNT_KEY, SPLIT_NO_KEY,
    SPLIT_TENSORS_KEY, TensorInfo, declared_alignment,
};

/// Into which files a pruned model is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardPolicy {
    /// As the source: one file from one, the same tensors in each of several shards.
    #[default]
    Keep,
    /// One file.
    Single,
    /// Shards of at most that many bytes, as far as no single tensor takes more. The first holds the metadata and, if
    /// these leave no room, no tensor.
    Size(u64),
}

/// A file of a pruned model.
#[derive(Clone, Debug)]
pub struct FileShape {
    /// Its metadata.
    pub metadata: Metadata,
    /// The tensors that it holds: indices into [`Model::tensors`](crate::gguf::Model::tensors), ascending.
    pub tensors: Vec<usize>,
    /// Where everything lies in it.
    pub layout: Layout,
}

/// A shard of the source, its metadata already those of the pruned model.
#[derive(Clone, Debug)]
pub(super) struct Shard {
    pub(super) metadata: Metadata,
    pub(super) version: u32,
    pub(super) tensors: Range<usize>,
}

/// The tensors of a pruned model, and where each comes from: its index in the source.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'a> {
    pub(super) infos: &'a [TensorInfo],
    pub(super) sources: &'a [usize],
}

/// Shares out `tensors`, which come from `shards`.
pub(super) fn share_out(
    policy: ShardPolicy,
    shards: &[Shard],
    tensors: Tensors<'_>,
) -> Result<Vec<FileShape>, PrunedError> {
    let (Some(first), several) = (shards.first(), shards.len() > 1) else { return Ok(Vec::new()) };
    match policy {
        ShardPolicy::Single if several => Ok(vec![single(first, tensors)?]),
        ShardPolicy::Keep | ShardPolicy::Single => shards
            .iter()
            .map(|shard| file(shard.metadata.clone(), shard.tensors.clone(), tensors, shard.version))
            .collect(),
        ShardPolicy::Size(bytes) => by_size(bytes, first, tensors),
    }
}

/// One file of everything, which says nothing of shards.
fn single(first: &Shard, tensors: Tensors<'_>) -> Result<FileShape, PrunedError> {
    file(without_split(&first.metadata), 0..tensors.infos.len(), tensors, first.version)
}

fn file(
    metadata: Metadata,
    range: Range<usize>,
    tensors: Tensors<'_>,
    version: u32,
) -> Result<FileShape, PrunedError> {
    let alignment = declared_alignment(&metadata).map_err(|fault| GgufError::Layout { fault })?;
    let layout = Layout::new(&metadata, &tensors.infos[range.clone()], alignment, version)?;
    Ok(FileShape { metadata, tensors: tensors.sources[range].to_vec(), layout })
}

/// A number of tensors in the type that the metadata of shards hold it in.
pub(super) fn count_for_shards(tensors: usize) -> Result<i32, PrunedError> {
    i32::try_from(tensors).map_err(|_| PrunedError::TooManyTensors { tensors })
}

fn without_split(metadata: &Metadata) -> Metadata {
    let mut metadata = metadata.clone();
    for key in [SPLIT_NO_KEY, SPLIT_COUNT_KEY, SPLIT_TENSORS_KEY] {
        metadata.remove(key);
    }
    metadata
}

fn by_size(limit: u64, first: &Shard, tensors: Tensors<'_>) -> Result<Vec<FileShape>, PrunedError> {
    let whole = single(first, tensors)?;
    if whole.layout.file_bytes() <= limit {
        return Ok(vec![whole]);
    }
    let total = count_for_shards(tensors.infos.len())?;
    let head = with_split(&first.metadata, 0, 0, total);
    let mut rest = Metadata::new();
    if let Some(alignment) = head.get(ALIGNMENT_KEY).and_then(|value| value.as_u64()) {
        // An alignment that llama.cpp takes is a u32.
        rest.set(ALIGNMENT_KEY, u32::try_from(alignment).unwrap_or(u32::MAX));
    }
    let ranges = fill(limit, &head, &with_split(&rest, 0, 0, total), tensors.infos)?;
    let too_many = |_| PrunedError::TooManyShards { bytes: limit, shards: ranges.len() };
    let count = u16::try_from(ranges.len()).map_err(too_many)?;
    (0..count)
        .zip(ranges)
        .map(|(index, range)| {
            let metadata = if index == 0 { &head } else { &rest };
            // Shards of the source may differ in version; the first one's goes for all, its metadata being theirs.
            file(with_split(metadata, index, count, total), range, tensors, first.version)
        })
        .collect()
}

/// `split.*` in the types that llama.cpp reads.
fn with_split(metadata: &Metadata, index: u16, count: u16, tensors: i32) -> Metadata {
    let mut metadata = metadata.clone();
    metadata.set(SPLIT_NO_KEY, OwnedValue::U16(index));
    metadata.set(SPLIT_COUNT_KEY, OwnedValue::U16(count));
    metadata.set(SPLIT_TENSORS_KEY, OwnedValue::I32(tensors));
    metadata
}

/// Fills one file after the other, in the order of the tensors.
fn fill(
    limit: u64,
    head: &Metadata,
    rest: &Metadata,
    tensors: &[TensorInfo],
) -> Result<Vec<Range<usize>>, PrunedError> {
    let alignment = declared_alignment(head).map_err(|fault| GgufError::Layout { fault })?;
    let header_bytes = |metadata: &Metadata, tensors: &[TensorInfo]| -> Result<u64, GgufError> {
        let layout = Layout::new(metadata, tensors, alignment, CURRENT_VERSION)?;
        Ok(layout.data_offset())
    };
    // Two padded parts are never less than both padded together, so no file comes out larger than reckoned here.
    let (head_bytes, rest_bytes) = (header_bytes(head, &[])?, header_bytes(rest, &[])?);
    let mut ranges = Vec::new();
    let (mut start, mut table, mut data) = (0, 0_u64, 0_u64);
    for (index, info) in tensors.iter().enumerate() {
        let entry = table_bytes(info);
        let bytes = info.bytes().saturating_add(alignment - 1) / alignment * alignment;
        let metadata = if ranges.is_empty() { head_bytes } else { rest_bytes };
        let header = metadata.saturating_add((table + entry).next_multiple_of(alignment));
        let full = header.saturating_add(data).saturating_add(bytes) > limit;
        if full && (index > start || ranges.is_empty()) {
            ranges.push(start..index);
            (start, table, data) = (index, 0, 0);
        }
        table += entry;
        data = data.saturating_add(bytes);
    }
    ranges.push(start..tensors.len());
    Ok(ranges)
}

/// Bytes that a tensor takes in the header: its name with a length, its dimensions with their number, type, offset.
fn table_bytes(info: &TensorInfo) -> u64 {
    8 + info.name.len() as u64 + 4 + 8 * info.dims.len() as u64 + 4 + 8
}
