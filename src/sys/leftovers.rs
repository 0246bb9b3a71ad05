//! What killed runs leave in a folder, and how it goes.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::journal;
use super::left_alone::LeftAlone;
use super::origin::Origin;
use super::staging::{Claim, Kind, OwnFiles, claim, parse_hidden};

/// What [`remove_leftovers`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Files of killed runs that were removed.
    pub removed: u64,
    /// Bytes that these had.
    pub bytes: u64,
    /// Groups of files that a killed run had made visible in part, and that were taken back.
    pub rolled_back: u64,
    /// What was left as it is, and why.
    pub left: Vec<LeftAlone>,
}

/// A hidden file of this machine.
struct Hidden {
    path: PathBuf,
    kind: Kind,
    origin: Origin,
}

/// Removes what killed runs left in `folder`, and takes back groups that they had made visible in part.
///
/// Files of running processes stay, and so does what is another user's or another machine's. One file that cannot be
/// mended does not stop the others; all that stays is told, but for the files of processes that run on this machine.
pub fn remove_leftovers(folder: &Path) -> io::Result<Leftovers> {
    let mut found = Leftovers::default();
    let hidden = hidden_files(folder, &mut found.left)?;
    if hidden.is_empty() {
        return Ok(found);
    }
    let own = OwnFiles::of_folder(folder)?;
    for journal in hidden.iter().filter(|file| file.kind == Kind::Journal) {
        match claim(&journal.path, journal.kind, &journal.origin, own) {
            Claim::Leftover(file) => take_back(&file, &journal.path, folder, &mut found),
            Claim::Busy => {}
            Claim::Foreign(why) => found.left.push(LeftAlone { path: journal.path.clone(), why }),
        }
    }
    // An old file is nobody's in the sense of locks, and still needed for as long as a journal may ask for it. Looked
    // at after the first look: a new file that becomes an old one does so only after its journal is there.
    let journals =
        hidden_files(folder, &mut Vec::new())?.into_iter().filter(|file| file.kind == Kind::Journal);
    let journals: HashSet<Origin> = journals.map(|journal| journal.origin).collect();
    for file in hidden.iter().filter(|file| file.kind != Kind::Journal && !journals.contains(&file.origin)) {
        match claim(&file.path, file.kind, &file.origin, own) {
            Claim::Leftover(opened) => {
                let bytes = opened.metadata().map_or(0, |metadata| metadata.len());
                match fs::remove_file(&file.path) {
                    Ok(()) => {
                        found.removed += 1;
                        found.bytes += bytes;
                    }
                    Err(error) => {
                        let why = format!("cannot be removed: {error}");
                        found.left.push(LeftAlone { path: file.path.clone(), why });
                    }
                }
            }
            Claim::Busy => {}
            Claim::Foreign(why) => found.left.push(LeftAlone { path: file.path.clone(), why }),
        }
    }
    Ok(found)
}

/// Takes back what a journal lists. It goes when nothing of it is left to do.
fn take_back(file: &fs::File, path: &Path, folder: &Path, found: &mut Leftovers) {
    let left = match journal::roll_back(file, folder) {
        Ok(left) => left,
        Err(error) => {
            let why = format!("cannot be read: {error}");
            vec![LeftAlone { path: path.to_owned(), why }]
        }
    };
    if !left.is_empty() {
        found.left.extend(left);
        return;
    }
    match fs::remove_file(path) {
        Ok(()) => found.rolled_back += 1,
        Err(error) => {
            let why = format!("cannot be removed: {error}");
            found.left.push(LeftAlone { path: path.to_owned(), why });
        }
    }
}

/// The hidden files of this machine, by name; those of others go to `left`.
fn hidden_files(folder: &Path, left: &mut Vec<LeftAlone>) -> io::Result<Vec<Hidden>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some((kind, origin)) = parse_hidden(&entry.file_name()) else { continue };
        match origin {
            Some(origin) if origin.is_here() => files.push(Hidden { path: entry.path(), kind, origin }),
            Some(origin) => {
                let why = format!("belongs to the machine {}, which may still be writing", origin.host);
                left.push(LeftAlone { path: entry.path(), why });
            }
            None => {
                let why = "was left by moeslice 0.1.0: remove it when that no longer runs".to_owned();
                left.push(LeftAlone { path: entry.path(), why });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    left.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::super::staging::create;
    use super::*;

    /// A hidden name of a process that is dead.
    fn dead(folder: &Path, kind: &str) -> PathBuf {
        let origin = Origin { pid: 1, ..Origin::own() };
        folder.join(format!(".out.gguf.moeslice-{origin}-0.{kind}"))
    }

    #[test]
    fn leftovers_are_removed_and_living_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (partial, old) = (dead(folder.path(), "partial"), dead(folder.path(), "old"));
        let other = folder.path().join("out.gguf");
        for path in [&partial, &old, &other] {
            fs::write(path, b"12345").unwrap();
        }
        let (alive, alive_path) = create(&folder.path().join("b.gguf"), Kind::Partial).unwrap();
        let found = remove_leftovers(folder.path()).unwrap();
        assert_eq!(found, Leftovers { removed: 2, bytes: 10, rolled_back: 0, left: Vec::new() });
        assert!(!partial.exists() && !old.exists());
        assert!(other.exists() && alive_path.exists());
        drop(alive);
        assert_eq!(remove_leftovers(folder.path()).unwrap().removed, 1);
    }

    #[test]
    fn link_or_folder_with_a_hidden_name_stays_and_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, b"1").unwrap();
        symlink(&precious, dead(folder.path(), "partial")).unwrap();
        fs::create_dir(dead(folder.path(), "old")).unwrap();
        let found = remove_leftovers(folder.path()).unwrap();
        assert_eq!((found.removed, found.left.len()), (0, 2), "{found:?}");
        assert!(precious.exists());
    }

    #[test]
    fn files_of_another_machine_stay_and_are_told() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".a.moeslice-elsewhere-12ab-1-0.partial", ".a.moeslice-1-0.old"] {
            fs::write(folder.path().join(name), b"1").unwrap();
        }
        let found = remove_leftovers(folder.path()).unwrap();
        assert_eq!(found.removed, 0);
        let whys: Vec<String> = found.left.iter().map(LeftAlone::to_string).collect();
        assert!(whys[0].contains("moeslice 0.1.0") && whys[1].contains("the machine elsewhere"), "{whys:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    /// A journal as a dead run leaves it, which says that `name` is a new file to be taken back.
    fn plant(folder: &Path, name: &str) -> PathBuf {
        let found = fs::metadata(folder.join(name)).unwrap();
        let numbers = format!("{} {} {} {}", found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        let old = dead(folder, "old");
        let old = old.file_name().unwrap().to_str().unwrap();
        let path = dead(folder, "commit");
        fs::write(&path, format!("moeslice commit 2\0{numbers}\0{old}\0{name}\0end")).unwrap();
        path
    }

    #[test]
    fn a_planted_journal_is_not_followed() {
        type Plant = fn(&Path, &Path);
        let plants: [(&str, Plant); 3] = [
            ("other users", |_, journal| {
                fs::set_permissions(journal, fs::Permissions::from_mode(0o666)).unwrap();
            }),
            ("another name", |folder, journal| fs::hard_link(journal, folder.join("second")).unwrap()),
            ("symbolic link", |folder, journal| {
                fs::rename(journal, folder.join("second")).unwrap();
                symlink("second", journal).unwrap();
            }),
        ];
        for (why, change) in plants {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("precious"), b"1").unwrap();
            let journal = plant(folder.path(), "precious");
            fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).unwrap();
            change(folder.path(), &journal);
            let found = remove_leftovers(folder.path()).unwrap();
            assert_eq!((found.rolled_back, found.left.len()), (0, 1), "{why}");
            assert!(found.left[0].why.contains(why), "{found:?}");
            assert!(folder.path().join("precious").exists() && journal.symlink_metadata().is_ok(), "{why}");
        }
        // What the run itself left is followed: otherwise nothing was tested.
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("new"), b"1").unwrap();
        let journal = plant(folder.path(), "new");
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(remove_leftovers(folder.path()).unwrap().rolled_back, 1);
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_journal_of_another_user_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("precious"), b"1").unwrap();
        let journal = plant(folder.path(), "precious");
        fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).unwrap();
        // Only root can give files away.
        if std::os::unix::fs::chown(&journal, Some(12345), None).is_err() {
            eprintln!("not tried: this user cannot make a file another user's");
            return;
        }
        let found = remove_leftovers(folder.path()).unwrap();
        assert!(found.left.iter().any(|left| left.why == "is another user's"), "{found:?}");
        assert!(folder.path().join("precious").exists());
    }
}
