//! Ranges of bytes from one file to another.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use thiserror::Error;

/// Bytes of a step: after each the caller hears of the progress and may stop. Large enough that a call costs nothing.
const STEP: u64 = 16 << 20;

/// Bytes of the buffer that is used where the kernel does not copy by itself.
const BUFFER: usize = 4 << 20;

/// Copies ranges inside the kernel where that works, otherwise through one buffer that is used again and again.
#[derive(Debug)]
pub struct Copier {
    in_kernel: bool,
    buffer: Vec<u8>,
}

/// Why a range was not copied whole.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source gave an error.
    #[error("reading at byte {at}: {error}")]
    Read {
        /// Position in the source.
        at: u64,
        /// What the system says.
        error: io::Error,
    },
    /// The source ends before the range does.
    #[error("the file ends at byte {at}")]
    Ended {
        /// Where the source ends.
        at: u64,
    },
    /// The target gave an error.
    #[error("writing at byte {at}: {error}")]
    Write {
        /// Position in the target.
        at: u64,
        /// What the system says.
        error: io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

impl Default for Copier {
    fn default() -> Self {
        Self::new()
    }
}

impl Copier {
    /// One that tries the kernel's own copy first.
    pub fn new() -> Self {
        Self { in_kernel: cfg!(target_os = "linux"), buffer: Vec::new() }
    }

    /// One that always reads and writes.
    pub fn through_buffer() -> Self {
        Self { in_kernel: false, buffer: Vec::new() }
    }

    /// Copies `len` bytes from `from` at `from_offset` to `to` at `to_offset`.
    ///
    /// `step` is called with the number of bytes done since its last call; when it returns `false`, the copy stops.
    pub fn copy(
        &mut self,
        (from, from_offset): (&File, u64),
        (to, to_offset): (&File, u64),
        len: u64,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), CopyError> {
        let end = from_offset.checked_add(len).filter(|&end| i64::try_from(end).is_ok());
        let end = end.ok_or(CopyError::Ended { at: from_offset })?;
        let mut at = from_offset;
        while at < end {
            let target = to_offset + (at - from_offset);
            let want = (end - at).min(STEP);
            let mut done = if self.in_kernel { self.kernel_step((from, at), (to, target), want) } else { 0 };
            if done == 0 {
                done = self.buffer_step((from, at), (to, target), want)?;
            }
            at += done;
            if !step(done) {
                return Err(CopyError::Stopped);
            }
        }
        Ok(())
    }

    /// One call of the kernel's copy. 0 says that the bytes must be read and written instead, which then either works
    /// or tells which of the two files is at fault, and how.
    fn kernel_step(&mut self, from: (&File, u64), to: (&File, u64), want: u64) -> u64 {
        match copy_file_range(from, to, want) {
            Ok(0) => 0,
            Ok(done) => done,
            Err(error) => {
                // Two file systems that have no copy between them stay that way: do not ask again.
                let lasting =
                    [libc::EXDEV, libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM, libc::ETXTBSY];
                if error.raw_os_error().is_some_and(|code| lasting.contains(&code)) {
                    self.in_kernel = false;
                }
                0
            }
        }
    }

    fn buffer_step(
        &mut self,
        (from, from_offset): (&File, u64),
        (to, to_offset): (&File, u64),
        want: u64,
    ) -> Result<u64, CopyError> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER];
        }
        let buffer = &mut self.buffer[..BUFFER.min(usize::try_from(want).unwrap_or(BUFFER))];
        let n = loop {
            match from.read_at(buffer, from_offset) {
                Ok(0) => {
                    let end = from.metadata().map_or(from_offset, |metadata| metadata.len());
                    return Err(CopyError::Ended { at: end.min(from_offset) });
                }
                Ok(n) => break n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CopyError::Read { at: from_offset, error }),
            }
        };
        // `write_all_at` completes short writes.
        let written = to.write_all_at(&buffer[..n], to_offset);
        written.map_err(|error| CopyError::Write { at: to_offset, error })?;
        Ok(n as u64)
    }
}

/// The system call, tried again when a signal interrupts it. Returns the bytes copied, 0 at the end of the source.
#[cfg(target_os = "linux")]
fn copy_file_range(
    (from, from_offset): (&File, u64),
    (to, to_offset): (&File, u64),
    len: u64,
) -> io::Result<u64> {
    use std::os::fd::AsRawFd;

    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let len = usize::try_from(len).map_err(out_of_range)?;
    loop {
        let mut read_at = libc::loff_t::try_from(from_offset).map_err(out_of_range)?;
        let mut write_at = libc::loff_t::try_from(to_offset).map_err(out_of_range)?;
        // SAFETY: both descriptors are open for as long as the borrowed files live, both offsets point to variables of
        // this frame, and the call writes to no other memory of ours.
        let done = unsafe {
            libc::copy_file_range(from.as_raw_fd(), &mut read_at, to.as_raw_fd(), &mut write_at, len, 0)
        };
        if let Ok(done) = u64::try_from(done) {
            return Ok(done);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn copy_file_range(_: (&File, u64), _: (&File, u64), _: u64) -> io::Result<u64> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn content(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn both_ways_of_copying_give_the_same_bytes() {
        let bytes: Vec<u8> = (0..9_000_001_u32).map(|i| (i % 251) as u8).collect();
        let from = file_of(&bytes);
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let to = file_of(b"head");
            let mut seen = 0;
            let mut step = |n| {
                seen += n;
                true
            };
            copier.copy((&from, 7), (&to, 4), 8_999_990, &mut step).unwrap();
            assert_eq!(seen, 8_999_990);
            let out = content(&to);
            assert_eq!(&out[..4], b"head");
            assert!(out[4..] == bytes[7..8_999_997]);
        }
    }

    #[test]
    fn source_that_ends_early_is_reported_with_the_place() {
        let from = file_of(&[1; 100]);
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let to = file_of(b"");
            let error = copier.copy((&from, 10), (&to, 0), 91, &mut |_| true).unwrap_err();
            assert!(matches!(error, CopyError::Ended { at: 100 }), "{error}");
        }
    }

    #[test]
    fn range_past_any_file_is_refused() {
        let from = file_of(&[1; 100]);
        let error = Copier::new().copy((&from, u64::MAX - 1), (&from, 0), 9, &mut |_| true).unwrap_err();
        assert!(matches!(error, CopyError::Ended { .. }), "{error}");
    }

    #[test]
    fn errors_tell_which_side_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [0; 64]).unwrap();
        let readable = File::open(&path).unwrap();
        let writable = File::options().write(true).open(&path).unwrap();
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let target = file_of(b"");
            let error = copier.copy((&writable, 0), (&target, 0), 8, &mut |_| true).unwrap_err();
            assert!(matches!(error, CopyError::Read { at: 0, .. }), "{error}");
            let error = copier.copy((&readable, 0), (&readable, 0), 8, &mut |_| true).unwrap_err();
            assert!(matches!(error, CopyError::Write { at: 0, .. }), "{error}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn read_that_fails_midway_is_reported() {
        // Unmapped memory: a file that opens, and gives an I/O error where it is read.
        let from = File::open("/proc/self/mem").unwrap();
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let to = file_of(b"");
            let error = copier.copy((&from, 4096), (&to, 0), 8, &mut |_| true).unwrap_err();
            let CopyError::Read { at: 4096, error } = error else { panic!("{error}") };
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn full_target_is_reported() {
        let from = file_of(&[1; 100]);
        let to = File::options().write(true).open("/dev/full").unwrap();
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let error = copier.copy((&from, 0), (&to, 0), 100, &mut |_| true).unwrap_err();
            let CopyError::Write { at: 0, error } = error else { panic!("{error}") };
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        }
    }

    #[test]
    fn copy_stops_when_interrupted() {
        let from = file_of(&vec![3; 40 << 20]);
        for mut copier in [Copier::new(), Copier::through_buffer()] {
            let to = file_of(b"");
            let mut calls = 0;
            let mut step = |_| {
                calls += 1;
                false
            };
            let error = copier.copy((&from, 0), (&to, 0), 40 << 20, &mut step).unwrap_err();
            assert!(matches!(error, CopyError::Stopped), "{error}");
            assert_eq!(calls, 1);
        }
    }
}
