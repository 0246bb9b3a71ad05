//! Room on a disk.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::FileError;

/// Bytes that this process may still write to the file system that holds `path`; `u64::MAX` when it does not tell.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `statvfs` is a plain C structure of integers, for which all zeros is a valid value.
    let mut info: libc::statvfs = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the path ends with a NUL and outlives the call; `info` is a writable `statvfs`.
        if unsafe { libc::statvfs(path.as_ptr(), &mut info) } == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if info.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    // The widths of these fields differ between platforms.
    #[allow(clippy::useless_conversion)]
    let (blocks, block) = (u64::from(info.f_bavail), u64::from(info.f_frsize));
    Ok(blocks.saturating_mul(block))
}

/// Checks that files of these sizes can be written to `folder`; returns the bytes that are free there.
pub fn check_room(folder: &Path, files: &[(&Path, u64)]) -> Result<u64, FileError> {
    let Some(&(path, _)) = files.first() else { return Ok(u64::MAX) };
    let limit = file_size_limit().unwrap_or(u64::MAX);
    if let Some(&(path, needed)) = files.iter().find(|(_, bytes)| *bytes > limit) {
        return Err(FileError::SizeLimit { path: path.to_owned(), needed, limit });
    }
    let needed = files.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let free = free_bytes(folder).map_err(|error| FileError::Write { path: path.to_owned(), error })?;
    if needed > free {
        return Err(FileError::NoRoom { path: path.to_owned(), needed, free });
    }
    Ok(free)
}

/// The largest file that this process may write; `None` without such a limit.
pub(super) fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a writable `rlimit`.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Gives `file` the length `bytes` and reserves room for it, so that a full disk is met before the long work.
///
/// Where the file system cannot reserve, only the length is set.
pub(super) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // Writing past this limit would not give an error but a signal that ends the process.
    if file_size_limit().is_some_and(|limit| bytes > limit) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    match allocate(file, bytes) {
        Err(error)
            if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)) => {}
        other => other?,
    }
    file.set_len(bytes)
}

#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let bytes = libc::off64_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    if bytes == 0 {
        return Ok(());
    }
    loop {
        // SAFETY: the descriptor is open for as long as the borrowed file lives; no memory is passed.
        if unsafe { libc::fallocate64(file.as_raw_fd(), 0, 0, bytes) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_file_has_its_length_and_reads_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        reserve(&file, 100_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        reserve(&file, 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn reservation_beyond_any_disk_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(reserve(&file, u64::MAX).is_err());
        assert!(reserve(&file, 1 << 62).is_err());
    }

    #[test]
    fn free_bytes_of_missing_folder_is_an_error() {
        assert!(free_bytes(Path::new("/nonexistent/folder")).is_err());
        assert!(free_bytes(Path::new("/")).unwrap() > 0);
    }
}
