//! Files that are read whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::file_id::FileState;

/// More than any usage file or plan has: hundreds of layers and experts and a hundred corpora stay below it.
const LIMIT: u64 = 1 << 30;

/// Reads a file that is small by its nature, a pipe among them.
///
/// # Errors
/// When it cannot be read, is written to meanwhile, or is so large that it cannot be what it is taken for (`/dev/zero`
/// has no end).
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    read_unchanged(File::open(path)?, |file| read_at_most(file, LIMIT))
}

fn read_unchanged(file: File, read: impl FnOnce(&File) -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let (regular, before) = (file.metadata()?.is_file(), FileState::of_file(&file)?);
    let bytes = read(&file)?;
    if regular && FileState::of_file(&file)? != before {
        return Err(io::Error::other("it was changed while it was read: try again when it is complete"));
    }
    Ok(bytes)
}

fn read_at_most(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{read_at_most, read_bounded, read_unchanged};

    #[test]
    fn file_that_is_written_to_while_it_is_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("u.json");
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read_bounded(&path).unwrap(), b"{}");
        let error = read_unchanged(File::open(&path).unwrap(), |file| {
            let bytes = read_at_most(file, 100);
            std::fs::write(&path, "{\"more\": 1}").unwrap();
            bytes
        });
        assert!(error.unwrap_err().to_string().contains("changed while it was read"));
    }

    #[test]
    fn endless_file_is_read_to_the_limit_only() {
        assert!(read_at_most(std::io::repeat(0), 1000).is_err());
        assert_eq!(read_at_most(&b"abc"[..], 3).unwrap(), b"abc");
    }
}
