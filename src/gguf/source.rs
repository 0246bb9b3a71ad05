//! Where bytes come from: files, and slices of memory in tests.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any position without moving a shared cursor.
pub trait ReadAt {
    /// Reads up to `buf.len()` bytes at `offset`; 0 only at the end (or for an empty `buf`).
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Bytes that there are in all.
    fn byte_len(&self) -> io::Result<u64>;

    /// Fills as much of `buf` as there is at `offset`, and returns how much that was.
    fn read_full_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(at) = offset.checked_add(done as u64) else { break };
            match self.read_at(rest, at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

impl ReadAt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // The kernel refuses positions above i64::MAX; no file has a byte there.
        if i64::try_from(offset).is_err() {
            return Ok(0);
        }
        FileExt::read_at(self, buf, offset)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.as_slice().read_at(buf, offset)
    }

    fn byte_len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}
