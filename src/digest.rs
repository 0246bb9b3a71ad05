//! SHA-256 and how it is written.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Bytes read at once.
const CHUNK: usize = 1 << 16;

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The SHA-256 of `bytes`, in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The length and the SHA-256, in hex, of all that `file` gives; it is never in memory whole.
pub(crate) fn sha256_of_file(mut file: impl Read) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((bytes, hex(&hash.finalize()))),
            Ok(n) => {
                hash.update(&chunk[..n]);
                bytes += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_longer_than_a_chunk_has_the_hash_of_its_bytes() {
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(2 * CHUNK + 3).collect();
        assert_eq!(sha256_of_file(&bytes[..]).unwrap(), (bytes.len() as u64, sha256(&bytes)));
    }

    #[test]
    fn the_hash_of_a_known_text_is_the_published_one() {
        let published = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), published);
    }
}
