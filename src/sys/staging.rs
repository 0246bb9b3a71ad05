//! Hidden files beside a target, and what a killed run leaves of them.
//!
//! All names are `.NAME.moeslice-PID-NUMBER.KIND`. A run holds a lock on its hidden files for as long as it lives; the
//! system drops the lock with the process, however it ends, so a file that can be locked belongs to nobody any more.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::folder::folder_of;

/// Bytes of the target's name that a hidden name repeats: with what is added it stays under the usual limit of 255.
const NAME_BYTES: usize = 180;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What a hidden file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new file that is being written.
    Partial,
    /// An old file that a group of new ones is replacing.
    Old,
    /// The list of the files of a group that is becoming visible.
    Journal,
}

impl Kind {
    fn suffix(self) -> &'static [u8] {
        match self {
            Self::Partial => b".partial",
            Self::Old => b".old",
            Self::Journal => b".commit",
        }
    }
}

/// A hidden name beside `target` that was not given out before in this process.
pub(super) fn hidden_name(target: &Path, kind: Kind) -> PathBuf {
    let name = target.file_name().unwrap_or_default().as_bytes();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut hidden = b".".to_vec();
    hidden.extend(&name[..name.len().min(NAME_BYTES)]);
    hidden.extend(format!(".moeslice-{}-{number}", std::process::id()).as_bytes());
    hidden.extend(kind.suffix());
    folder_of(target).join(OsString::from_vec(hidden))
}

/// Kind and process id of a hidden name; `None` for every other name.
pub(super) fn parse_hidden(name: &OsStr) -> Option<(Kind, u32)> {
    let name = name.as_bytes().strip_prefix(b".")?;
    let (kind, rest) = [Kind::Partial, Kind::Old, Kind::Journal]
        .into_iter()
        .find_map(|kind| Some((kind, name.strip_suffix(kind.suffix())?)))?;
    let mark = b".moeslice-";
    let at = rest.windows(mark.len()).rposition(|window| window == mark)?;
    let numbers = std::str::from_utf8(&rest[at + mark.len()..]).ok()?;
    let (pid, number) = numbers.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if at == 0 || !digits(pid) || !digits(number) {
        return None;
    }
    Some((kind, pid.parse().ok()?))
}

/// Creates and locks a hidden file beside `target`.
pub(super) fn create(target: &Path, kind: Kind) -> io::Result<(File, PathBuf)> {
    loop {
        let path = hidden_name(target, kind);
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            // A leftover of a process that had our id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            // Between creation and lock the cleaning of another run may have taken it for a leftover.
            Ok(()) if file.metadata()?.nlink() == 0 => {}
            Err(TryLockError::WouldBlock) => {}
            // Without locks nobody takes it for a leftover either.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok((file, path)),
        }
    }
}

/// Opens a hidden file and locks it, if nobody else has; `None` when it is somebody's, or cannot be told to be nobody's.
pub(super) fn claim(path: &Path) -> Option<File> {
    let open = |write| {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
    };
    // Network file systems lock only what is open for writing.
    let file = open(true).or_else(|_| open(false)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.try_lock().ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_recognised_and_no_others() {
        for kind in [Kind::Partial, Kind::Old, Kind::Journal] {
            for target in ["out.gguf", "/some/folder/a.moeslice-1-2.partial", "né\u{301} \u{1F600}"] {
                let hidden = hidden_name(Path::new(target), kind);
                assert_eq!(folder_of(&hidden), folder_of(Path::new(target)));
                assert_eq!(parse_hidden(hidden.file_name().unwrap()), Some((kind, std::process::id())));
            }
        }
        let others = [
            "out.gguf",
            ".out.gguf",
            ".out.partial",
            "out.moeslice-1-2.partial",
            "..moeslice-1-2.part",
            ".moeslice-1-2.partial",
            ".out.moeslice-1.partial",
            ".out.moeslice--2.partial",
            ".out.moeslice-1-.partial",
            ".out.moeslice-1-2x.partial",
            ".out.moeslice-99999999999-2.partial",
        ];
        for name in others {
            assert_eq!(parse_hidden(OsStr::new(name)), None, "{name}");
        }
    }

    #[test]
    fn hidden_name_of_a_long_name_still_fits() {
        let target = PathBuf::from("x".repeat(255));
        assert!(hidden_name(&target, Kind::Journal).file_name().unwrap().len() < 255);
    }
}
