//! Hints to the page cache.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Tells the page cache that a range of `file` will be read soon. A hint: failure changes nothing.
pub fn advise_soon(file: &File, offset: u64, len: u64) {
    advise(file, offset, len, Advice::Soon);
}

/// Tells the page cache that `file` is read from front to back. A hint: failure changes nothing.
pub fn advise_once(file: &File) {
    advise(file, 0, 0, Advice::Sequential);
}

/// Asks the system to begin writing a range of `file` to the disk, without waiting for the end of it. A hint: failure
/// changes nothing, and nothing is known to be on the disk afterwards.
#[cfg(target_os = "linux")]
pub fn begin_writing(file: &File, offset: u64, len: u64) {
    if let (Ok(offset), Ok(len)) = (libc::off64_t::try_from(offset), libc::off64_t::try_from(len)) {
        // SAFETY: the descriptor is open for as long as the borrowed file lives; no memory is passed.
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

/// Does nothing where the system does not offer it.
#[cfg(not(target_os = "linux"))]
pub fn begin_writing(_: &File, _: u64, _: u64) {}

/// Drops what the page cache holds of `file`, so that the disk is read next. What was not synced stays. A hint: failure
/// changes nothing.
pub fn drop_pages(file: &File) {
    advise(file, 0, 0, Advice::Drop);
}

enum Advice {
    Soon,
    Sequential,
    Drop,
}

#[cfg(target_os = "linux")]
fn advise(file: &File, offset: u64, len: u64, advice: Advice) {
    let advice = match advice {
        Advice::Soon => libc::POSIX_FADV_WILLNEED,
        Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
        Advice::Drop => libc::POSIX_FADV_DONTNEED,
    };
    if let (Ok(offset), Ok(len)) = (libc::off64_t::try_from(offset), libc::off64_t::try_from(len)) {
        // SAFETY: the descriptor is open for as long as the borrowed file lives; no memory is passed.
        unsafe { libc::posix_fadvise64(file.as_raw_fd(), offset, len, advice) };
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(file: &File, _: u64, _: u64, _: Advice) {
    let _ = file.as_raw_fd();
}
