//! The key/value entries of a header, in their order, kept as the bytes that they were read as.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::owned_value::{OwnedValue, encode_string};
use super::value::Value;

/// Ordered metadata entries.
///
/// An entry that was read from a file keeps its encoded bytes and is written back as those. All entries of one file
/// share one buffer, so a clone is cheap and a vocabulary costs no allocation a token.
#[derive(Clone, Default)]
pub struct Metadata {
    /// The beginning of the file, in which [`Bytes::Read`] ranges lie.
    file: Arc<Vec<u8>>,
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    key: String,
    bytes: Bytes,
}

#[derive(Clone)]
enum Bytes {
    Read(Range<usize>),
    Set(Vec<u8>),
}

impl Metadata {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Entries whose encoded, checked values lie at the given ranges of `file`.
    pub(super) fn from_read(file: Vec<u8>, entries: Vec<(String, Range<usize>)>) -> Self {
        let entries =
            entries.into_iter().map(|(key, range)| Entry { key, bytes: Bytes::Read(range) }).collect();
        Self { file: Arc::new(file), entries }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        Value::decode(self.raw(key)?)
    }

    /// Whether there is an entry `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.key.as_str())
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().filter_map(|entry| Some((entry.key.as_str(), Value::decode(self.bytes(entry))?)))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The encoded value of `key`: its type as u32, then the payload.
    pub fn raw(&self, key: &str) -> Option<&[u8]> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| self.bytes(entry))
    }

    fn bytes<'a>(&'a self, entry: &'a Entry) -> &'a [u8] {
        match &entry.bytes {
            Bytes::Read(range) => self.file.get(range.clone()).unwrap_or_default(),
            Bytes::Set(bytes) => bytes,
        }
    }

    /// Sets `key` to `value`: in the place of the old value, or as the last entry.
    ///
    /// # Panics
    /// When an array holds an element of another type than it declares, or another array.
    pub fn set(&mut self, key: &str, value: impl Into<OwnedValue>) {
        let mut bytes = Vec::new();
        value.into().encode_into(&mut bytes);
        let bytes = Bytes::Set(bytes);
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.bytes = bytes,
            None => self.entries.push(Entry { key: key.to_owned(), bytes }),
        }
    }

    /// Removes `key`; the others keep their order. Returns whether there was such an entry.
    pub fn remove(&mut self, key: &str) -> bool {
        let position = self.entries.iter().position(|entry| entry.key == key);
        position.map(|at| self.entries.remove(at)).is_some()
    }

    /// Appends all entries as a header holds them.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            encode_string(&entry.key, out);
            out.extend_from_slice(self.bytes(entry));
        }
    }
}

/// Equal when both have the same keys in the same order with the same encoded values.
impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(a, b)| a.key == b.key && self.bytes(a) == other.bytes(b))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
