//! The key/value entries of a header, in their order, kept as the bytes that they were read as.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::owned_value::{OwnedValue, encode_bytes};
use super::text::shown;
use super::value::Value;

/// Ordered metadata entries.
///
/// An entry that was read from a file keeps its encoded bytes and is written back as those. All entries of one file
/// share one buffer, so a clone is cheap and a vocabulary costs no allocation a token. A key is compared up to its first
/// NUL, as llama.cpp does; of two that are the same to it, the first is found.
#[derive(Clone, Default)]
pub struct Metadata {
    /// The beginning of the file, in which [`Bytes::Read`] ranges lie.
    file: Arc<Vec<u8>>,
    entries: Vec<Entry>,
    by_key: HashMap<Arc<str>, usize>,
}

#[derive(Clone)]
struct Entry {
    key: Arc<str>,
    /// The bytes of the key where they are not those of `key`.
    raw_key: Option<Arc<[u8]>>,
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

    /// Entries of the given keys whose encoded, checked values lie at the given ranges of `file`.
    pub(super) fn from_read(file: Vec<u8>, entries: Vec<(Vec<u8>, Range<usize>)>) -> Self {
        let entry = |(raw, range): (Vec<u8>, Range<usize>)| {
            let key: Arc<str> = shown(&raw).into();
            let raw_key = (key.as_bytes() != raw).then(|| raw.into());
            Entry { key, raw_key, bytes: Bytes::Read(range) }
        };
        let mut metadata = Self {
            file: Arc::new(file),
            entries: entries.into_iter().map(entry).collect(),
            ..Self::default()
        };
        metadata.index();
        metadata
    }

    fn index(&mut self) {
        self.by_key.clear();
        for (at, entry) in self.entries.iter().enumerate() {
            self.by_key.entry(Arc::clone(&entry.key)).or_insert(at);
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        Value::decode(self.raw(key)?)
    }

    /// Whether there is an entry `key`.
    pub fn contains(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// All keys in order, what is not UTF-8 in them replaced.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.key)
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.entries.iter().filter_map(|entry| Some((&*entry.key, Value::decode(self.bytes(entry))?)))
    }

    /// All entries in order, as bytes: keys as they are stored, and encoded values.
    pub fn raw_entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| (entry.raw_key(), self.bytes(entry)))
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
        self.by_key.get(key).map(|&at| self.bytes(&self.entries[at]))
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
        match self.by_key.get(key) {
            Some(&at) => self.entries[at].bytes = bytes,
            None => {
                let key: Arc<str> = key.into();
                self.by_key.insert(Arc::clone(&key), self.entries.len());
                self.entries.push(Entry { key, raw_key: None, bytes });
            }
        }
    }

    /// Removes `key`; the others keep their order. Returns whether there was such an entry.
    pub fn remove(&mut self, key: &str) -> bool {
        let Some(&at) = self.by_key.get(key) else { return false };
        self.entries.remove(at);
        self.index();
        true
    }

    /// Removes all entries but those whose keys are `wanted`; they keep their order.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.entries.retain(|entry| wanted(&entry.key));
        self.index();
    }

    /// Appends all entries as a header holds them.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        for entry in &self.entries {
            encode_bytes(entry.raw_key(), out);
            out.extend_from_slice(self.bytes(entry));
        }
    }
}

impl Entry {
    fn raw_key(&self) -> &[u8] {
        self.raw_key.as_deref().unwrap_or(self.key.as_bytes())
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
                .all(|(a, b)| a.raw_key() == b.raw_key() && self.bytes(a) == other.bytes(b))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
