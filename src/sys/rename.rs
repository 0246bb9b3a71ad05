//! Renaming without destroying what is there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::folder::folder_of;

/// Gives the file `from` the name `to`, which must be free: [`io::ErrorKind::AlreadyExists`] otherwise.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(test)]
    crash::point();
    match rename_no_replace(from, to) {
        Err(error) if is_unsupported(&error) => {}
        other => return other,
    }
    // A second name cannot be given over an existing one either; the first name goes afterwards.
    match fs::hard_link(from, to) {
        // With both names left, neither the caller nor a later run could tell which one counts.
        Ok(()) => fs::remove_file(from).inspect_err(|_| drop(fs::remove_file(to))),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
            Err(error)
        }
        // A file system with neither: looking first leaves a short moment, which is the best that it allows.
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Brings what was written to `file` to the disk.
pub(super) fn sync_file(file: &File) -> io::Result<()> {
    match file.sync_all() {
        // There the standard library has the disk itself flush, which network shares and some disks cannot.
        #[cfg(target_vendor = "apple")]
        Err(error) if is_unsupported(&error) => fsync(file),
        other => other,
    }
}

#[cfg(target_vendor = "apple")]
fn fsync(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open for as long as the borrowed file lives; no memory is passed.
    let status = unsafe { libc::fsync(file.as_raw_fd()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes renames in the folder of `path` last through a power cut.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder_of(path)).and_then(|folder| sync_file(&folder)) {
        // File systems that cannot sync a folder say so in this way; they have nothing better to offer.
        Err(error) if is_unsupported(&error) => Ok(()),
        other => other,
    }
}

pub(super) fn is_unsupported(error: &io::Error) -> bool {
    let codes = [libc::EINVAL, libc::ENOSYS, libc::ENOTSUP, libc::EOPNOTSUPP, libc::ENOTTY];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
        || error.kind() == io::ErrorKind::Unsupported
}

#[cfg(target_os = "linux")]
fn rename_no_replace(from: &Path, to: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // By number and not through the C library's wrapper, which musl lacks.
    // SAFETY: both paths end with a NUL and outlive the call, which reads them and touches no other memory of ours.
    let status = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn rename_no_replace(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Stands for a kill between two steps: a panic, after which tests find what a dead process leaves.
#[cfg(test)]
pub(super) mod crash {
    use std::cell::Cell;

    thread_local! {
        static STEPS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets that many steps of this thread pass, then panics at each.
    pub(crate) fn after(steps: Option<u32>) {
        STEPS_LEFT.set(steps);
    }

    /// A step.
    pub(crate) fn point() {
        match STEPS_LEFT.get() {
            Some(0) => panic!("killed"),
            left => STEPS_LEFT.set(left.map(|left| left - 1)),
        }
    }
}
