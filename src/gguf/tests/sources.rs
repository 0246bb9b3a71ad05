//! How much is read, and what happens when reading fails.

use std::cell::Cell;
use std::io;
use std::path::Path;

use super::*;
use crate::gguf::{GgufError, Header, Metadata, ReadAt};

/// Counts the bytes that are read, gives short reads, and says that it has `len` bytes.
struct Probe {
    bytes: Vec<u8>,
    len: u64,
    read: Cell<u64>,
    fail_from: u64,
}

impl Probe {
    fn new(bytes: Vec<u8>, len: u64) -> Self {
        Self { bytes, len, read: Cell::new(0), fail_from: u64::MAX }
    }

    fn parse(&self) -> Result<Header, GgufError> {
        Header::parse(self, Path::new("input"))
    }
}

impl ReadAt for Probe {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if offset >= self.fail_from {
            return Err(io::Error::other("bad sector"));
        }
        if self.read.get() == 0 {
            self.read.set(1);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buf.len().min(1000);
        let n = self.bytes.read_at(&mut buf[..len], offset)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}

fn header_of(tokens: usize) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("tokens", (0..tokens).map(|i| format!("token {i}")).collect::<Vec<_>>());
    let mut bytes = head(0, 1);
    metadata.encode_into(&mut bytes);
    bytes
}

#[test]
fn reading_stops_soon_after_the_header() {
    for tokens in [1, 100, 10_000, 200_000] {
        let header = header_of(tokens);
        let end = header.len() as u64;
        let mut bytes = header;
        bytes.resize(bytes.len() + (4 << 20), 0xaa);
        let probe = Probe::new(bytes.clone(), 1 << 40);
        let parsed = probe.parse().unwrap();
        assert_eq!(parsed.header_end, end);
        let ahead = probe.read.get().saturating_sub(end);
        assert!(ahead <= end.clamp(64 << 10, 1 << 20), "{tokens} tokens: {ahead} bytes too many");
    }
}

#[test]
fn absurd_counts_are_refused_after_one_chunk() {
    for bytes in [head(1 << 60, 0), head(0, 1 << 60), entry_file(&entry("k", 9, &array(8, 1 << 40, b"")))] {
        let len = bytes.len() as u64;
        let probe = Probe::new(bytes, len);
        assert!(probe.parse().unwrap_err().malformation().is_some());
        assert!(probe.read.get() <= len + 1);
    }
}

#[test]
fn lengths_above_the_limits_of_llama_cpp_are_refused_even_in_long_files() {
    let over = (1_u64 << 30) + 1;
    let fault = |mut bytes: Vec<u8>| {
        bytes.resize(200, 0);
        Probe::new(bytes, 1 << 40).parse().unwrap_err().malformation().cloned()
    };
    let found = fault(entry_file(&entry("k", 8, &over.to_le_bytes())));
    assert!(
        matches!(found, Some(Malformation::StringLength { declared, .. }) if declared == over),
        "{found:?}"
    );
    let found = fault(entry_file(&entry("k", 9, &array(0, over, b""))));
    assert!(
        matches!(found, Some(Malformation::ArrayLength { declared, .. }) if declared == over),
        "{found:?}"
    );
}

#[test]
fn header_of_absurd_size_is_refused_before_it_is_read() {
    let mut bytes = entry_file(&entry("k", 9, &array(10, 1 << 28, b"")));
    bytes.resize(200, 0);
    let probe = Probe::new(bytes, 1 << 40);
    let what = "the value of metadata key \"k\"".into();
    assert_eq!(probe.parse().unwrap_err().malformation(), Some(&Malformation::HeaderTooLarge { what }));
    assert!(probe.read.get() <= 201);
}

#[test]
fn source_that_shrinks_while_read_is_refused() {
    let header = header_of(1000);
    let cut = header.len() as u64 - 10;
    let probe = Probe::new(header[..cut as usize].to_vec(), 1 << 30);
    let error = probe.parse().unwrap_err();
    assert!(
        matches!(error.malformation(), Some(Malformation::HeaderTruncated { len, .. }) if *len == cut),
        "{error}"
    );
}

#[test]
fn source_that_fails_to_read_is_reported() {
    for fail_from in [0, 70_000] {
        let probe = Probe { fail_from, ..Probe::new(header_of(100_000), 1 << 30) };
        let error = probe.parse().unwrap_err();
        assert!(matches!(error, GgufError::Read { .. }), "{error}");
        assert!(error.to_string().contains("bad sector"));
    }
    let probe = Probe { fail_from: 0, ..Probe::new(Vec::new(), 1 << 30) };
    let header = fuzzing::gguf::header(&tensor_file(&[tensor("a", &[8], 0, 0)], 32)).unwrap();
    let error = header.check_data(&probe, Path::new("input")).unwrap_err();
    assert!(matches!(error, GgufError::Read { .. }), "{error}");
}
