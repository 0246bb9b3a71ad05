//! What killed runs leave in a folder, and how it goes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::journal;
use super::staging::{Kind, claim, parse_hidden};

/// What [`remove_leftovers`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Files of killed runs that were removed.
    pub removed: u64,
    /// Bytes that these had.
    pub bytes: u64,
    /// Groups of files that a killed run had made visible in part, and that were taken back.
    pub rolled_back: u64,
}

/// Removes what killed runs left in `folder`, and takes back groups that they had made visible in part.
///
/// Files of running processes stay. What cannot be removed stays as well: it may be another user's.
pub fn remove_leftovers(folder: &Path) -> io::Result<Leftovers> {
    let mut found = Leftovers::default();
    for (path, kind, _) in hidden_files(folder)? {
        if kind == Kind::Journal
            && let Some(file) = claim(&path)
            && journal::roll_back(&file, folder).is_ok()
            && fs::remove_file(&path).is_ok()
        {
            found.rolled_back += 1;
        }
    }
    for (path, kind, pid) in hidden_files(folder)? {
        if kind == Kind::Journal {
            continue;
        }
        let Some(file) = claim(&path) else { continue };
        // An old file is nobody's in the sense of locks, and still needed for as long as a journal may ask for it.
        // Asked after the lock: a new file that becomes an old one does so only after its journal is there.
        let journal = hidden_files(folder)?.into_iter().any(|(_, kind, p)| kind == Kind::Journal && p == pid);
        if journal {
            continue;
        }
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        if fs::remove_file(&path).is_ok() {
            found.removed += 1;
            found.bytes += bytes;
        }
    }
    Ok(found)
}

fn hidden_files(folder: &Path) -> io::Result<Vec<(PathBuf, Kind, u32)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some((kind, pid)) = parse_hidden(&entry.file_name()) {
            files.push((entry.path(), kind, pid));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::staging::create;
    use super::*;

    #[test]
    fn leftovers_are_removed_and_living_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let dead = folder.path().join(".out.gguf.moeslice-1-0.partial");
        let old = folder.path().join(".out.gguf.moeslice-1-1.old");
        let other = folder.path().join("out.gguf");
        for path in [&dead, &old, &other] {
            fs::write(path, b"12345").unwrap();
        }
        let (_alive, alive_path) = create(&folder.path().join("b.gguf"), Kind::Partial).unwrap();
        let found = remove_leftovers(folder.path()).unwrap();
        assert_eq!(found, Leftovers { removed: 2, bytes: 10, rolled_back: 0 });
        assert!(!dead.exists() && !old.exists());
        assert!(other.exists() && alive_path.exists());
        drop(_alive);
        assert_eq!(remove_leftovers(folder.path()).unwrap().removed, 1);
    }

    #[test]
    fn link_or_folder_with_a_hidden_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, b"1").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join(".a.moeslice-1-0.partial")).unwrap();
        fs::create_dir(folder.path().join(".a.moeslice-1-1.partial")).unwrap();
        assert_eq!(remove_leftovers(folder.path()).unwrap(), Leftovers::default());
        assert!(precious.exists());
    }
}
