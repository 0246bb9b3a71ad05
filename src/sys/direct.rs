//! Reads from the disk, past the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::page_cache::drop_pages;

/// Memory and positions of a read past the page cache are multiples of this: no disk has larger blocks.
const UNIT: usize = 4096;

/// A file whose bytes are read from the disk, whatever the page cache holds of it.
///
/// The file system is asked to read past the page cache. Some take no such reads, and some take them and look into the
/// cache all the same: so what the cache holds is dropped before. Only what was not written to the disk yet is read from
/// memory, see [`write_out`](super::write_out).
#[derive(Debug)]
pub struct DiskFile<'a> {
    file: &'a File,
    /// The same file, opened to be read past the page cache.
    direct: Option<File>,
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
    pub fn read(&self, block: &mut DiskBlock, offset: u64) -> io::Result<usize> {
        drop_pages(self.file, offset, block.len as u64);
        let bytes = &mut block.bytes[block.start..block.start + block.len];
        self.read_bytes(bytes, offset)
    }

    fn read_bytes(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.direct.as_ref().map(|direct| read_full(direct, bytes, offset)) {
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
        match file.read_at(&mut bytes[done..], at) {
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
        for direct in [true, false] {
            let mut disk = DiskFile::new(&file);
            disk.direct = disk.direct.filter(|_| direct);
            let mut block = DiskBlock::new(3 * UNIT);
            let (mut read, mut at) = (Vec::new(), 0);
            loop {
                let len = disk.read(&mut block, at).unwrap();
                read.extend_from_slice(&block.bytes()[..len]);
                at += len as u64;
                if len < block.bytes().len() {
                    break;
                }
            }
            assert!(read == bytes, "direct {direct}");
            assert_eq!(disk.read(&mut block, 1 << 40).unwrap(), 0);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_past_the_cache_is_read_through_it() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 9000], 0).unwrap();
        let mut disk = DiskFile::new(&file);
        // Opened for writing alone, as a stand-in that answers every read with an error of its own.
        disk.direct = File::options().write(true).open("/dev/null").ok();
        let mut block = DiskBlock::new(4 * UNIT);
        assert_eq!(disk.read(&mut block, 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
        disk.direct = None;
        assert_eq!(disk.read(&mut block, 4096).unwrap(), 9000 - 4096);
        assert!(block.bytes()[..9000 - 4096].iter().all(|&byte| byte == 7));
    }
}
