//! Reads a header front to back, never more than a chunk ahead of what is needed.

use std::ops::Range;
use std::path::Path;

use super::error::GgufError;
use super::limits::{MAX_HEADER_BYTES, MAX_LENGTH};
use super::malformation::Malformation;
use super::source::ReadAt;
use super::value::ValueType;

/// Least and most bytes that are read at once beyond what is needed.
const CHUNK: Range<u64> = 64 << 10..1 << 20;

/// A position in a source, and all bytes before it.
pub(super) struct Cursor<'s> {
    source: &'s dyn ReadAt,
    path: &'s Path,
    len: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(source: &'s dyn ReadAt, path: &'s Path) -> Result<Self, GgufError> {
        let len = source.byte_len().map_err(|error| GgufError::Read {
            path: path.to_owned(),
            what: "the file's size".into(),
            error,
        })?;
        Ok(Self { source, path, len, buffer: Vec::new(), at: 0 })
    }

    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    pub(super) fn remaining(&self) -> u64 {
        self.len.saturating_sub(self.position())
    }

    /// The bytes at a range that has been passed.
    pub(super) fn passed(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// The bytes up to the position.
    pub(super) fn into_passed(mut self, end: usize) -> Vec<u8> {
        self.buffer.truncate(end);
        self.buffer.shrink_to_fit();
        self.buffer
    }

    pub(super) fn fault(&self, fault: impl Into<Malformation>) -> GgufError {
        GgufError::malformed(self.path, fault)
    }

    /// Up to `n` bytes from the position on, which stays where it is.
    pub(super) fn peek(&mut self, n: usize) -> Result<&[u8], GgufError> {
        let n = self.remaining().min(n as u64) as usize;
        self.fill(n, &|| "the start of the file".into())?;
        Ok(&self.buffer[self.at..self.at + n])
    }

    /// Passes `n` bytes and returns where they lie.
    pub(super) fn take(&mut self, n: u64, what: &dyn Fn() -> String) -> Result<Range<usize>, GgufError> {
        let n = usize::try_from(n).ok().filter(|&n| n as u64 <= self.remaining());
        let Some(n) = n else { return Err(self.truncated(what)) };
        // No overflow: both are bounded by the length of the source.
        if (self.at + n) as u64 > MAX_HEADER_BYTES {
            return Err(self.fault(Malformation::HeaderTooLarge { what: what() }));
        }
        self.fill(n, what)?;
        let range = self.at..self.at + n;
        self.at = range.end;
        Ok(range)
    }

    fn truncated(&self, what: &dyn Fn() -> String) -> GgufError {
        self.fault(Malformation::HeaderTruncated { what: what(), len: self.len })
    }

    /// Makes sure that `n` bytes from the position on are in the buffer; they must lie within the source.
    fn fill(&mut self, n: usize, what: &dyn Fn() -> String) -> Result<(), GgufError> {
        let needed = self.at + n;
        let have = self.buffer.len();
        if needed <= have {
            return Ok(());
        }
        let read = |error| GgufError::Read { path: self.path.to_owned(), what: what(), error };
        // Chunks grow with the header, so that a large one takes few reads and a small one little memory.
        let ahead = have as u64 + (have as u64).clamp(CHUNK.start, CHUNK.end);
        let target = ahead.max(needed as u64).min(self.len) as usize;
        self.buffer.try_reserve(target - have).map_err(|error| read(error.into()))?;
        self.buffer.resize(target, 0);
        let got = self.source.read_full_at(&mut self.buffer[have..], have as u64).map_err(read)?;
        self.buffer.truncate(have + got);
        // Less than the size promised: the file shrank.
        if self.buffer.len() < needed {
            self.len = self.buffer.len() as u64;
            return Err(self.truncated(what));
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self, what: &dyn Fn() -> String) -> Result<[u8; N], GgufError> {
        let range = self.take(N as u64, what)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[range]);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &dyn Fn() -> String) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &dyn Fn() -> String) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Passes a string and returns where its bytes lie: llama.cpp does not ask whether they are UTF-8.
    pub(super) fn string(&mut self, what: &dyn Fn() -> String) -> Result<Range<usize>, GgufError> {
        let declared = self.u64(what)?;
        self.text(declared, what)
    }

    /// Passes a text of `declared` bytes whose length has been passed.
    pub(super) fn text(
        &mut self,
        declared: u64,
        what: &dyn Fn() -> String,
    ) -> Result<Range<usize>, GgufError> {
        let remaining = self.remaining();
        if declared > remaining.min(MAX_LENGTH) {
            return Err(self.fault(Malformation::StringLength { what: what(), declared, remaining }));
        }
        self.take(declared, what)
    }

    /// Passes the value of `key`, checks all of it, and returns where it lies, type included.
    pub(super) fn value(&mut self, key: &str) -> Result<Range<usize>, GgufError> {
        let what = &|| format!("the value of metadata key {key:?}");
        let start = self.at;
        let ty = self.value_type(key, what)?;
        match ty.fixed_bytes() {
            Some(_) => self.fixed_values(key, ty, 1, what)?,
            None if ty == ValueType::String => {
                self.string(what)?;
            }
            None => self.array_value(key, what)?,
        }
        Ok(start..self.at)
    }

    fn value_type(&mut self, key: &str, what: &dyn Fn() -> String) -> Result<ValueType, GgufError> {
        let id = self.u32(what)?;
        ValueType::from_id(id)
            .ok_or_else(|| self.fault(Malformation::UnknownValueType { key: key.to_owned(), id }))
    }

    fn array_value(&mut self, key: &str, what: &dyn Fn() -> String) -> Result<(), GgufError> {
        let element = self.value_type(key, what)?;
        let declared = self.u64(what)?;
        if element == ValueType::Array {
            return Err(self.fault(Malformation::NestedArray { key: key.to_owned() }));
        }
        let remaining = self.remaining();
        // A string takes at least the eight bytes of its length.
        let least = declared.checked_mul(element.fixed_bytes().unwrap_or(8));
        if declared > MAX_LENGTH || least.is_none_or(|least| least > remaining) {
            let key = key.to_owned();
            return Err(self.fault(Malformation::ArrayLength { key, declared, remaining }));
        }
        if element.fixed_bytes().is_some() {
            return self.fixed_values(key, element, declared, what);
        }
        for index in 0..declared {
            self.string(&|| format!("element {index} of metadata key {key:?}"))?;
        }
        Ok(())
    }

    fn fixed_values(
        &mut self,
        key: &str,
        ty: ValueType,
        count: u64,
        what: &dyn Fn() -> String,
    ) -> Result<(), GgufError> {
        let bytes = ty.fixed_bytes().unwrap_or(0).saturating_mul(count);
        let range = self.take(bytes, what)?;
        if ty == ValueType::Bool
            && let Some(&byte) = self.buffer[range].iter().find(|&&byte| byte > 1)
        {
            return Err(self.fault(Malformation::InvalidBool { key: key.to_owned(), byte }));
        }
        Ok(())
    }
}
