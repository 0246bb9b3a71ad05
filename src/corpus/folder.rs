//! The files of a folder.

use super::error::CorpusError;
use std::fs;
use std::path::{Path, PathBuf};

/// All files below `folder`, hidden ones left out, sorted by path so that every machine reads them in the same order.
pub(super) fn list_files(folder: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let mut files = Vec::new();
    list_into(folder, &mut files)?;
    Ok(files)
}

fn list_into(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), CorpusError> {
    let failed = |source| CorpusError::Read { path: folder.to_owned(), source };
    let mut entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // A link to a folder could lead in a circle; a link to a file is read.
        if kind.is_dir() {
            list_into(&path, files)?;
        } else if kind.is_file() || path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
