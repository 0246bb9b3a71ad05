//! Who may read and write a new file.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// Permissions proper, without the bits that change whom a program runs as.
const PERMISSIONS: u32 = 0o777;

/// The permissions that programs ask for when they create a file.
const PLAIN: u32 = 0o666;

/// The permissions of the file at `path`, when there is one.
pub(super) fn of_path(path: &Path) -> Option<(u32, u32)> {
    let found = fs::symlink_metadata(path).ok().filter(|found| found.is_file())?;
    Some((found.mode() & PERMISSIONS, found.gid()))
}

/// The permissions of an open file.
pub(super) fn of_file(file: &File) -> io::Result<u32> {
    Ok(file.metadata()?.mode() & PERMISSIONS)
}

/// Gives `file` the permissions and the group of a file that it replaces. Where the group cannot be had, the group that
/// the file has instead gets no more than everybody has.
pub(super) fn replace(file: &File, (mode, group): (u32, u32)) -> io::Result<()> {
    let same_group = file.metadata()?.gid() == group || fchown(file, None, Some(group)).is_ok();
    let mode = if same_group { mode } else { mode & (0o707 | (mode & 0o007) << 3) };
    file.set_permissions(Permissions::from_mode(mode))
}

/// Gives a new file the permissions of the one that it is made from, or those of any new file, less what the user
/// wants no new file to have.
pub(super) fn fresh(file: &File, like: Option<u32>) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(like.unwrap_or(PLAIN) & !umask()))
}

/// What the user wants no new file to have.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or_else(swapped_umask)
}

/// The mask can only be read by setting it. Files that other threads create meanwhile are private.
fn swapped_umask() -> u32 {
    // SAFETY: sets and gives back a number of the process; no memory is passed.
    let mask = unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    };
    // The type differs between platforms.
    #[allow(clippy::useless_conversion)]
    u32::from(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_tell_the_same_mask() {
        assert_eq!(umask(), swapped_umask());
    }
}
