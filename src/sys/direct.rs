//! Reads from the disk, past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::page_cache::{advise_soon, drop_pages};

/// Memory and positions of a read past the page cache are multiples of this: no disk has larger blocks.
const UNIT: usize = 4096;

/// Bytes of one request. Two at once, each of these many, are what disks are fastest with; larger ones are no faster.
const REQUEST: usize = 1 << 20;

/// A file whose bytes are read from the disk, whatever the page cache holds of it: that is dropped before. Only what was
/// not written to the disk yet is read from memory, see [`write_out`](super::write_out).
#[derive(Debug)]
pub struct DiskFile<'a> {
    file: &'a File,
    /// The same file, opened to be read past the page cache.
    direct: Option<File>,
}

/// The way from the disk to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the page cache, which makes pages and copies them.
    Cached,
    /// Past the page cache where the file system can do that, with less than half the processor time. Some file systems let
    /// nobody write to a file meanwhile.
    Direct,
}

/// A block of memory that a [`DiskFile`] is read into.
#[derive(Debug)]
pub struct DiskBlock {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl DiskBlock {
    /// One of `len` bytes, a multiple of 4096.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + UNIT];
        let start = bytes.as_ptr().align_offset(UNIT).min(UNIT);
        Self { bytes, start, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl<'a> DiskFile<'a> {
    /// `file` has to be open for reading.
    pub fn new(file: &'a File) -> Self {
        Self { file, direct: open_direct(file) }
    }

    /// Fills `block` from `offset` on, a multiple of 4096, and gives how many bytes there are.
    pub fn read(&self, block: &mut DiskBlock, offset: u64, way: Way) -> io::Result<usize> {
        // Some file systems take a read past the cache and look into it all the same.
        drop_pages(self.file, offset, block.len as u64);
        let direct = self.direct.as_ref().filter(|_| way == Way::Direct);
        if direct.is_none() {
            advise_soon(self.file, offset, block.len as u64);
        }
        let bytes = &mut block.bytes[block.start..block.start + block.len];
        let half = (bytes.len() / 2).next_multiple_of(UNIT);
        let (first, second) = bytes.split_at_mut(half.min(bytes.len()));
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| self.read_part(direct, second, offset.saturating_add(half as u64)));
            let first = self.read_part(direct, first, offset);
            (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (first, second) = (first?, second?);
        Ok(if first == half { half + second } else { first })
    }

    fn read_part(&self, direct: Option<&File>, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match direct.map(|direct| read_full(direct, bytes, offset)) {
            None => read_full(self.file, bytes, offset),
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                read_full(self.file, bytes, offset)
            }
            Some(read) => read,
        }
    }
}

fn read_full(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    // A part of a unit is the end of the file.
    while done < bytes.len() && done % UNIT == 0 {
        let Some(at) = offset.checked_add(done as u64).filter(|&at| i64::try_from(at).is_ok()) else { break };
        let end = bytes.len().min(done + REQUEST);
        match file.read_at(&mut bytes[done..end], at) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Opens the file once more, by a name that leads to the very file.
#[cfg(target_os = "linux")]
fn open_direct(file: &File) -> Option<File> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &File) -> Option<File> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_by_blocks_up_to_its_end() {
        let bytes: Vec<u8> = (0..100_001_u32).map(|i| (i % 251) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        for way in [Way::Cached, Way::Direct] {
            let disk = DiskFile::new(&file);
            let mut block = DiskBlock::new(3 * UNIT);
            let (mut read, mut at) = (Vec::new(), 0);
            loop {
                let len = disk.read(&mut block, at, way).unwrap();
                read.extend_from_slice(&block.bytes()[..len]);
                at += len as u64;
                if len < block.bytes().len() {
                    break;
                }
            }
            assert!(read == bytes, "{way:?}");
            assert_eq!(disk.read(&mut block, 1 << 40, way).unwrap(), 0);
        }
    }

    #[test]
    fn a_file_system_without_direct_reads_is_read_through_the_cache() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 9000], 0).unwrap();
        let mut disk = DiskFile::new(&file);
        let mut block = DiskBlock::new(4 * UNIT);
        disk.direct = None;
        assert_eq!(disk.read(&mut block, 4096, Way::Direct).unwrap(), 9000 - 4096);
        assert!(block.bytes()[..9000 - 4096].iter().all(|&byte| byte == 7));
        // Any other error is told.
        disk.direct = File::options().write(true).open("/dev/null").ok();
        let error = disk.read(&mut block, 0, Way::Direct).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(disk.read(&mut block, 0, Way::Cached).unwrap(), 9000);
    }
}
