//! The header of a GGUF file: version, metadata and tensor table.

use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;

use super::cursor::Cursor;
use super::error::GgufError;
use super::foreign_format::{FOREIGN_FORMAT_BYTES, not_gguf};
use super::limits::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_ALIGNMENT, MAX_DIMS, MAX_KEY_BYTES, MAX_NAME_BYTES,
};
use super::malformation::Malformation;
use super::metadata::Metadata;
use super::source::ReadAt;
use super::tensor::{TensorError, TensorInfo};
use super::text::shown;
use super::types::TensorType;
use super::value::Value;

/// Bytes of an entry with a key of one letter and a value of one byte.
const LEAST_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;

/// Bytes of a table row with an empty name and no dimension.
const LEAST_TENSOR_BYTES: u64 = 8 + 4 + 4 + 8;

/// Everything before a file's data section.
#[derive(Clone, Debug)]
pub struct Header {
    /// The version of the format, 2 or 3.
    pub version: u32,
    /// All entries, `general.alignment` included.
    pub metadata: Metadata,
    /// The tensor table in its order; offsets equal the running sum of padded sizes.
    pub tensors: Vec<TensorInfo>,
    /// Bytes to whose multiples data section and tensors are padded.
    pub alignment: u64,
    /// Where the data section starts in the file. Padded to the alignment if there are tensors.
    pub data_offset: u64,
    /// Where the tensor table ends in the file, without padding.
    pub header_end: u64,
    /// Bytes of the data section, the padding of the last tensor included.
    pub data_bytes: u64,
}

impl Header {
    /// Reads and checks the header of `source`; `path` is what errors call it.
    ///
    /// Checks everything that can be checked without the data: that is [`check_data`](Self::check_data)'s job.
    /// Memory is bounded by a small multiple of the bytes that the header really has in the source.
    pub fn parse(source: &dyn ReadAt, path: &Path) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(source, path)?;
        let version = read_version(&mut cursor)?;
        let declared_tensors = cursor.u64(&|| "the number of tensors".into())?;
        let declared_entries = cursor.u64(&|| "the number of metadata entries".into())?;
        let remaining = cursor.remaining();
        if exceeds(declared_tensors, LEAST_TENSOR_BYTES, remaining) {
            return Err(cursor.fault(Malformation::TensorCount { declared: declared_tensors, remaining }));
        }
        if exceeds(declared_entries, LEAST_ENTRY_BYTES, remaining) {
            return Err(cursor.fault(Malformation::EntryCount { declared: declared_entries, remaining }));
        }

        let mut entries = Vec::new();
        for index in 0..declared_entries {
            let key = read_key(&mut cursor, index)?;
            let value = cursor.value(&shown(&key))?;
            entries.push((key, value));
        }
        if let Some(key) = first_duplicate(entries.iter().map(|(key, _)| key.as_slice())) {
            return Err(cursor.fault(Malformation::DuplicateKey { key: shown(key) }));
        }
        let metadata_end = cursor.position() as usize;
        let alignment = match entries.iter().find(|(key, _)| shown(key) == ALIGNMENT_KEY) {
            Some((_, range)) => check_alignment(Value::decode(cursor.passed(range.clone()))),
            None => Ok(DEFAULT_ALIGNMENT),
        };
        let alignment = alignment.map_err(|fault| cursor.fault(fault))?;

        let mut tensors = Vec::new();
        let mut data_bytes = 0;
        for index in 0..declared_tensors {
            let info = read_tensor(&mut cursor, index)?;
            // At each row, not at the end: otherwise a long run of zero bytes would be read as scalars without a name.
            data_bytes = check_offset(&info, data_bytes, alignment).map_err(|fault| cursor.fault(fault))?;
            tensors.push(info);
        }
        if let Some(tensor) = first_duplicate(tensors.iter().map(|info| info.name.as_str())) {
            return Err(cursor.fault(Malformation::DuplicateTensor { tensor: tensor.to_owned() }));
        }

        let header_end = cursor.position();
        let data_offset =
            if tensors.is_empty() { header_end } else { header_end.next_multiple_of(alignment) };
        if let Some(last) = tensors.last()
            && data_offset.checked_add(data_bytes).is_none_or(|end| i64::try_from(end).is_err())
        {
            return Err(cursor.fault(Malformation::DataOverflow { tensor: last.name.clone() }));
        }
        let metadata = Metadata::from_read(cursor.into_passed(metadata_end), entries);
        Ok(Self { version, metadata, tensors, alignment, data_offset, header_end, data_bytes })
    }

    /// Checks that the data of every tensor lie within `source`, and that no other GGUF file follows them.
    ///
    /// The padding of the last tensor may be missing. Other bytes after the data are ignored, as llama.cpp does.
    pub fn check_data(&self, source: &dyn ReadAt, path: &Path) -> Result<(), GgufError> {
        let read = |error| GgufError::Read {
            path: path.to_owned(),
            what: "what follows the last tensor".into(),
            error,
        };
        let len = source.byte_len().map_err(read)?;
        // No sum below overflows: parsing has added them all.
        let end_of = |info: &TensorInfo| self.data_offset + info.offset + info.bytes();
        if let Some(info) = self.tensors.iter().find(|info| end_of(info) > len) {
            let (tensor, end) = (info.name.clone(), end_of(info));
            return Err(GgufError::malformed(path, Malformation::DataTruncated { tensor, end, len }));
        }
        let end = self.tensors.last().map_or(self.header_end, end_of);
        for position in [end, end.next_multiple_of(self.alignment)] {
            let mut next = [0; 8];
            let got = source.read_full_at(&mut next, position).map_err(read)?;
            // The version guards against data that happen to hold the four letters.
            if got == next.len() && next.starts_with(MAGIC) && matches!(next[4..], [1..=3, 0, 0, 0]) {
                return Err(GgufError::malformed(path, Malformation::JoinedShards { position }));
            }
        }
        Ok(())
    }
}

/// Whether `count` records of at least `least` bytes cannot fit into `remaining` bytes.
fn exceeds(count: u64, least: u64, remaining: u64) -> bool {
    count.checked_mul(least).is_none_or(|bytes| bytes > remaining)
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let start = cursor.peek(FOREIGN_FORMAT_BYTES)?;
    if !start.starts_with(MAGIC) {
        let fault = not_gguf(start);
        return Err(cursor.fault(fault));
    }
    cursor.take(MAGIC.len() as u64, &|| "the magic".into())?;
    let version = cursor.u32(&|| "the version".into())?;
    match version {
        2 | 3 => Ok(version),
        1 => Err(cursor.fault(Malformation::VersionOne)),
        // A small version in the other byte order has its low half zero.
        _ if version != 0 && version & 0xffff == 0 => Err(cursor.fault(Malformation::BigEndian)),
        _ => Err(cursor.fault(Malformation::UnknownVersion { version })),
    }
}

fn read_key(cursor: &mut Cursor<'_>, index: u64) -> Result<Vec<u8>, GgufError> {
    let what = &|| format!("the key of metadata entry {index}");
    let bytes = cursor.u64(what)?;
    if bytes == 0 {
        return Err(cursor.fault(Malformation::EmptyKey { index }));
    }
    if bytes > MAX_KEY_BYTES && bytes <= cursor.remaining() {
        return Err(cursor.fault(Malformation::KeyTooLong { index, bytes }));
    }
    let range = cursor.text(bytes, what)?;
    let key = cursor.passed(range).to_vec();
    check_key(&key, index).map_err(|fault| cursor.fault(fault))?;
    Ok(key)
}

/// Checks the key of the entry at `index`.
pub(super) fn check_key(key: &[u8], index: u64) -> Result<(), Malformation> {
    let bytes = key.len() as u64;
    if bytes == 0 {
        return Err(Malformation::EmptyKey { index });
    }
    if bytes > MAX_KEY_BYTES {
        return Err(Malformation::KeyTooLong { index, bytes });
    }
    Ok(())
}

fn read_tensor(cursor: &mut Cursor<'_>, index: u64) -> Result<TensorInfo, GgufError> {
    let what = &|| format!("the name of tensor {index}");
    let bytes = cursor.u64(what)?;
    if bytes > MAX_NAME_BYTES as u64 && bytes <= cursor.remaining() {
        let fault = TensorError::too_long(cursor.peek(MAX_NAME_BYTES)?, bytes);
        return Err(cursor.fault(fault));
    }
    let range = cursor.text(bytes, what)?;
    let raw = cursor.passed(range);
    let name = shown(raw);
    let raw_name = (name.as_bytes() != raw).then(|| raw.into());

    let what = &|| format!("the entry of tensor {name:?}");
    let count = cursor.u32(what)?;
    if count as usize > MAX_DIMS {
        return Err(cursor.fault(TensorError::DimensionCount { tensor: name.clone(), dims: count.into() }));
    }
    let mut dims = Vec::with_capacity(MAX_DIMS);
    for _ in 0..count {
        dims.push(cursor.u64(what)?);
    }
    // Python's writer gives a scalar no dimension; ggml makes one of size 1 of it, and writes that.
    if dims.is_empty() {
        dims.push(1);
    }
    let ty = TensorType::from_id(cursor.u32(what)?)
        .map_err(|fault| cursor.fault(Malformation::TensorType { tensor: name.clone(), fault }))?;
    let offset = cursor.u64(what)?;
    let info = TensorInfo { name, raw_name, dims, ty, offset };
    info.check().map_err(|fault| cursor.fault(fault))?;
    Ok(info)
}

/// The first of `names` that occurred before.
pub(super) fn first_duplicate<T: Copy + Eq + Hash>(mut names: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = HashSet::new();
    names.find(|name| !seen.insert(*name))
}

/// The alignment that an entry `general.alignment` of this value declares.
pub(super) fn check_alignment(value: Option<Value<'_>>) -> Result<u64, Malformation> {
    match value {
        Some(Value::U32(alignment)) => check_alignment_number(alignment.into()),
        Some(other) => Err(Malformation::AlignmentType { found: other.value_type() }),
        None => Ok(DEFAULT_ALIGNMENT),
    }
}

/// Checks that `alignment` is a power of two of a sane size.
pub(super) fn check_alignment_number(alignment: u64) -> Result<u64, Malformation> {
    let usable = alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT;
    if usable { Ok(alignment) } else { Err(Malformation::Alignment { alignment }) }
}

/// Checks that `info` begins at `expected`, the padded end of the tensor before it; returns its own padded end.
fn check_offset(info: &TensorInfo, expected: u64, alignment: u64) -> Result<u64, Malformation> {
    let (tensor, offset) = (|| info.name.clone(), info.offset);
    if !offset.is_multiple_of(alignment) {
        return Err(Malformation::OffsetUnaligned { tensor: tensor(), offset, alignment });
    }
    if offset < expected {
        return Err(Malformation::OffsetOverlap { tensor: tensor(), offset, expected });
    }
    if offset > expected {
        return Err(Malformation::OffsetGap { tensor: tensor(), offset, expected });
    }
    padded_end(info, offset, alignment).ok_or_else(|| Malformation::DataOverflow { tensor: tensor() })
}

/// The padded end of `info` at `offset`, if that is a position which a file can have.
pub(super) fn padded_end(info: &TensorInfo, offset: u64, alignment: u64) -> Option<u64> {
    let end = offset.checked_add(info.bytes())?.checked_next_multiple_of(alignment)?;
    i64::try_from(end).ok()?;
    Some(end)
}
