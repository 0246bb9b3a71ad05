//! How many files a process may have open.

use super::error::FileError;

/// Files that are open without being counted here: those of libraries, and the few that a step opens on the way.
const SPARE: u64 = 64;

/// Makes sure that `more` files can be opened beside those that are open, by raising the limit as far as the system
/// lets this process raise it.
///
/// # Errors
/// When the system does not allow so many.
pub fn ensure_descriptors(more: u64) -> Result<(), FileError> {
    let needed = open_files().saturating_add(more).saturating_add(SPARE);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a writable `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || covers(limit.rlim_cur, needed) {
        return Ok(());
    }
    if !covers(limit.rlim_max, needed) {
        return Err(FileError::Descriptors { needed, limit: limit.rlim_max });
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: `raised` is a readable `rlimit`.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } {
        0 => Ok(()),
        _ => Err(FileError::Descriptors { needed, limit: limit.rlim_cur }),
    }
}

fn covers(limit: libc::rlim_t, needed: u64) -> bool {
    limit == libc::RLIM_INFINITY || limit >= needed
}

/// Files that are open now; some number above the usual where the system does not tell.
fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(SPARE, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_any_system_allows_are_refused() {
        ensure_descriptors(0).unwrap();
        let error = ensure_descriptors(1 << 50);
        assert!(matches!(error, Err(FileError::Descriptors { .. }) | Ok(())), "{error:?}");
    }
}
