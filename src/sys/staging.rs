//! Hidden files beside a target, and what a killed run leaves of them.
//!
//! All names are `.NAME.moeslice-HOST-BOOT-PID-NUMBER.KIND`. A run holds a lock on its hidden files for as long as it
//! lives; the system drops the lock with the process, however it ends, so a file of this machine that can be locked
//! belongs to nobody any more. Files of other machines are left alone: no lock tells about those.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::folder::folder_of;
use super::origin::Origin;

/// Bytes of the target's name that a hidden name repeats: with what is added it stays under the usual limit of 255.
const NAME_BYTES: usize = 150;

/// Nobody but the user reads or writes what is not finished.
const HIDDEN_MODE: u32 = 0o600;

/// Permission of others than the user to write.
const OTHERS_WRITE: u32 = 0o022;

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
    hidden.extend(format!(".moeslice-{}-{number}", Origin::own()).as_bytes());
    hidden.extend(kind.suffix());
    folder_of(target).join(OsString::from_vec(hidden))
}

/// Kind and origin of a hidden name, `None` in place of the origin when an earlier version gave the name; `None` for
/// every other name.
pub(super) fn parse_hidden(name: &OsStr) -> Option<(Kind, Option<Origin>)> {
    let name = name.as_bytes().strip_prefix(b".")?;
    let (kind, rest) = [Kind::Partial, Kind::Old, Kind::Journal]
        .into_iter()
        .find_map(|kind| Some((kind, name.strip_suffix(kind.suffix())?)))?;
    let mark = b".moeslice-";
    let at = rest.windows(mark.len()).rposition(|window| window == mark)?;
    let (origin, number) = std::str::from_utf8(&rest[at + mark.len()..]).ok()?.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if at == 0 || !digits(number) {
        return None;
    }
    match Origin::parse(origin) {
        Some(origin) => Some((kind, Some(origin))),
        // Version 0.1.0 wrote `PID-NUMBER`.
        None => (digits(origin) && origin.parse::<u32>().is_ok()).then_some((kind, None)),
    }
}

/// Creates and locks a hidden file beside `target`.
pub(super) fn create(target: &Path, kind: Kind) -> io::Result<(File, PathBuf)> {
    loop {
        let path = hidden_name(target, kind);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(HIDDEN_MODE);
        let file = match options.custom_flags(libc::O_NOFOLLOW).open(&path) {
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

/// What the files look like that this user creates in a folder: not all file systems keep users and permissions.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnFiles {
    user: u32,
    /// Permissions of others to write that even a private file has here.
    others_write: u32,
}

impl OwnFiles {
    /// Finds out by creating one.
    pub(super) fn of_folder(folder: &Path) -> io::Result<Self> {
        let (file, path) = create(&folder.join("probe"), Kind::Partial)?;
        let metadata = file.metadata();
        let _ = std::fs::remove_file(path);
        let metadata = metadata?;
        Ok(Self { user: metadata.uid(), others_write: metadata.mode() & OTHERS_WRITE })
    }
}

/// A hidden file that was found, and whose it is.
#[derive(Debug)]
pub(super) enum Claim {
    /// Nobody's: what a dead process of this user left. Locked for as long as the file is open.
    Leftover(File),
    /// A living process holds it, or it is gone.
    Busy,
    /// Not to be touched, and why.
    Foreign(String),
}

/// Opens a hidden file of `origin` and locks it, if it is this user's and nobody else's.
///
/// What is in a journal is acted upon, so nobody else may have written there: it has one name, and no other user may
/// write to it. Other hidden files are only removed, which takes one name away.
pub(super) fn claim(path: &Path, kind: Kind, origin: &Origin, own: OwnFiles) -> Claim {
    let open = |write| {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
    };
    let foreign = |why: &str| Claim::Foreign(why.to_owned());
    // Network file systems lock only what is open for writing.
    let opened = open(true).or_else(|_| open(false)).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Claim::Busy,
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return foreign("is a symbolic link"),
        Err(error) => return Claim::Foreign(format!("cannot be opened: {error}")),
    };
    if !metadata.is_file() {
        return foreign("is not a regular file");
    }
    if metadata.uid() != own.user {
        return foreign("is another user's");
    }
    if kind == Kind::Journal && metadata.nlink() > 1 {
        return foreign("has another name as well");
    }
    if kind == Kind::Journal && metadata.mode() & OTHERS_WRITE & !own.others_write != 0 {
        return foreign("may be written to by other users");
    }
    match file.try_lock() {
        Ok(()) => Claim::Leftover(file),
        Err(TryLockError::WouldBlock) => Claim::Busy,
        Err(TryLockError::Error(_)) if origin.is_before_boot() => Claim::Leftover(file),
        Err(TryLockError::Error(error)) => Claim::Foreign(format!("cannot be locked: {error}")),
    }
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
                assert_eq!(parse_hidden(hidden.file_name().unwrap()), Some((kind, Some(Origin::own()))));
            }
        }
        let others = [
            "out.gguf",
            ".out.gguf",
            ".out.partial",
            "out.moeslice-h-b-1-2.partial",
            "..moeslice-h-b-1-2.part",
            ".moeslice-h-b-1-2.partial",
            ".out.moeslice-1.partial",
            ".out.moeslice-h-b--2.partial",
            ".out.moeslice-h-b-1-.partial",
            ".out.moeslice-h-b-1-2x.partial",
            ".out.moeslice-h-b-99999999999-2.partial",
            ".out.moeslice-99999999999-2.partial",
        ];
        for name in others {
            assert_eq!(parse_hidden(OsStr::new(name)), None, "{name}");
        }
    }

    #[test]
    fn hidden_names_of_version_0_1_0_have_no_origin() {
        assert_eq!(parse_hidden(OsStr::new(".out.gguf.moeslice-12-3.old")), Some((Kind::Old, None)));
    }

    #[test]
    fn hidden_name_of_a_long_name_still_fits() {
        let target = PathBuf::from("x".repeat(255));
        assert!(hidden_name(&target, Kind::Journal).file_name().unwrap().len() < 255);
    }

    #[test]
    fn hidden_files_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let (file, _) = create(&folder.path().join("a"), Kind::Partial).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o077, 0);
    }
}
