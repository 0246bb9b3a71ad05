//! Hints to the page cache, and what it has to write.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::rename::is_unsupported;

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

/// Has the system write a range of `file` to the disk, and waits until it did. The disk may still hold it in a cache of
/// its own, and the file's length and place may not be on the disk: that takes a sync.
pub fn write_out(file: &File, offset: u64, len: u64) -> io::Result<()> {
    match sync_range(file, offset, len) {
        Err(error) if is_unsupported(&error) => file.sync_data(),
        other => other,
    }
}

#[cfg(target_os = "linux")]
fn sync_range(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let too_far = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let (offset, len) =
        (libc::off64_t::try_from(offset).map_err(too_far)?, libc::off64_t::try_from(len).map_err(too_far)?);
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open for as long as the borrowed file lives; no memory is passed.
    let status = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, flags) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn sync_range(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Drops what the page cache holds of a range of `file`, so that the disk is read next. What is not on the disk yet
/// stays. A hint: failure changes nothing.
pub fn drop_pages(file: &File, offset: u64, len: u64) {
    advise(file, offset, len, Advice::Drop);
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
