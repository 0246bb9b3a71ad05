//! What shards say of the split model that they belong to.

use std::path::{Path, PathBuf};

use super::error::{GgufError, ShardFault};
use super::metadata::Metadata;
use super::shard_name::parse_shard_name;
use super::value::{Value, ValueType};

/// The key of a shard's 0-based index, a u16.
pub const SPLIT_NO_KEY: &str = "split.no";
/// The key of the number of shards, a u16.
pub const SPLIT_COUNT_KEY: &str = "split.count";
/// The key of the number of tensors in all shards, an i32.
pub const SPLIT_TENSORS_KEY: &str = "split.tensors.count";

/// What a file says of the split that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) index: u16,
    pub(super) count: u16,
    pub(super) tensors: Option<i32>,
}

impl Split {
    /// The split that `metadata` declare; `None` for a file that stands alone (also one merged from shards).
    pub(super) fn of(metadata: &Metadata, path: &Path) -> Result<Option<Self>, GgufError> {
        let fault = |fault| GgufError::Shards { path: path.to_owned(), fault };
        let count = read_u16(metadata, SPLIT_COUNT_KEY).map_err(fault)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let missing = || fault(ShardFault::KeyMissing { key: SPLIT_NO_KEY });
        let index = read_u16(metadata, SPLIT_NO_KEY).map_err(fault)?.ok_or_else(missing)?;
        if index >= count {
            return Err(fault(ShardFault::IndexRange { index, count }));
        }
        let tensors = read_i32(metadata, SPLIT_TENSORS_KEY).map_err(fault)?;
        Ok(Some(Self { index, count, tensors }))
    }

    /// The prefix of all shards' names, from the name of this one.
    pub(super) fn prefix(&self, path: &Path) -> Result<PathBuf, GgufError> {
        let Self { index, count, .. } = *self;
        match parse_shard_name(path) {
            Some((prefix, i, n)) if (i, n) == (index, count) => Ok(prefix),
            _ => {
                Err(GgufError::Shards { path: path.to_owned(), fault: ShardFault::Renamed { index, count } })
            }
        }
    }
}

/// Checks that the shard with `metadata` can be shard `index` of the split that the first shard declares.
///
/// llama.cpp demands `split.no` alone; the other keys are compared where they are there, so that a shard of another
/// model is not taken for this one's.
pub(super) fn check_member(first: &Metadata, metadata: &Metadata, index: u16) -> Result<(), ShardFault> {
    let found = read_u16(metadata, SPLIT_NO_KEY)?.ok_or(ShardFault::KeyMissing { key: SPLIT_NO_KEY })?;
    for key in [SPLIT_COUNT_KEY, SPLIT_TENSORS_KEY, "general.architecture"] {
        let (expected, found) = (first.get(key), metadata.get(key));
        if let (Some(expected), Some(found)) = (expected, found)
            && expected != found
        {
            return Err(ShardFault::Foreign { key, expected: describe(expected), found: describe(found) });
        }
    }
    if found != index {
        return Err(ShardFault::Index { expected: index, found });
    }
    Ok(())
}

fn describe(value: Value<'_>) -> String {
    match (value.as_str(), value.as_i64()) {
        (Some(text), _) => format!("{text:?}"),
        (_, Some(number)) => number.to_string(),
        _ => format!("of type {}", value.value_type()),
    }
}

fn read_u16(metadata: &Metadata, key: &'static str) -> Result<Option<u16>, ShardFault> {
    match metadata.get(key) {
        None => Ok(None),
        Some(Value::U16(value)) => Ok(Some(value)),
        Some(other) => Err(ShardFault::KeyType { key, found: other.value_type(), expected: ValueType::U16 }),
    }
}

fn read_i32(metadata: &Metadata, key: &'static str) -> Result<Option<i32>, ShardFault> {
    match metadata.get(key) {
        None => Ok(None),
        Some(Value::I32(value)) => Ok(Some(value)),
        Some(other) => Err(ShardFault::KeyType { key, found: other.value_type(), expected: ValueType::I32 }),
    }
}
