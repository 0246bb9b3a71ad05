//! Names of the shards of a split model.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The end of the name of shard `index0` (from 0) of `count`.
pub(super) fn suffix(index0: u16, count: u16) -> String {
    format!("-{:05}-of-{:05}.gguf", u32::from(index0) + 1, count)
}

/// The path of shard `index0` (from 0) of `count`: `<prefix>-00001-of-00003.gguf`.
pub fn shard_path(prefix: &Path, index0: u16, count: u16) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(suffix(index0, count));
    path.into()
}

/// Prefix, index (from 0) and number of shards of a path that [`shard_path`] makes; `None` for any other path.
pub fn parse_shard_name(path: impl AsRef<Path>) -> Option<(PathBuf, u16, u16)> {
    let bytes = path.as_ref().as_os_str().as_bytes();
    let rest = bytes.strip_suffix(b".gguf")?;
    let (rest, count) = split_number(rest)?;
    let rest = rest.strip_suffix(b"-of")?;
    let (prefix, number) = split_number(rest)?;
    if prefix.is_empty() || number == 0 || number > count {
        return None;
    }
    Some((OsString::from_vec(prefix.to_vec()).into(), number - 1, count))
}

/// Takes `-` and five digits off the end.
fn split_number(bytes: &[u8]) -> Option<(&[u8], u16)> {
    let (rest, digits) = bytes.split_at_checked(bytes.len().checked_sub(5)?)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((rest.strip_suffix(b"-")?, number))
}
