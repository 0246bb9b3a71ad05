//! Files that are read whole.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than any usage file or plan has: hundreds of layers and experts and a hundred corpora stay below it.
const LIMIT: u64 = 1 << 30;

/// Reads a file that is small by its nature, a pipe among them.
///
/// # Errors
/// When it cannot be read, or is so large that it cannot be what it is taken for (`/dev/zero` has no end).
pub fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(File::open(path)?, LIMIT)
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
    use super::read_at_most;

    #[test]
    fn endless_file_is_read_to_the_limit_only() {
        assert!(read_at_most(std::io::repeat(0), 1000).is_err());
        assert_eq!(read_at_most(&b"abc"[..], 3).unwrap(), b"abc");
    }
}
