//! Bytes that may be text, looked at piece by piece.

use crate::digest::hex;
use sha2::{Digest, Sha256};

/// What a byte order mark looks like in UTF-8.
pub(super) const BOM: &[u8] = b"\xEF\xBB\xBF";

const BINARY: &str = "there are NUL bytes in it; is it a binary file?";

/// Checks bytes as they come: whether they are UTF-8 text, how many there are, and their hash.
#[derive(Default)]
pub(super) struct Check {
    hash: Sha256,
    n_bytes: u64,
    /// The beginning of a character that the next piece goes on with.
    open: Vec<u8>,
}

impl Check {
    /// Takes the next piece.
    ///
    /// # Errors
    /// Says what the bytes are when they are not UTF-8 text.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        if self.n_bytes == 0 && (piece.starts_with(b"\xFF\xFE") || piece.starts_with(b"\xFE\xFF")) {
            return Err("it is UTF-16; convert it first, for example with iconv -f UTF-16 -t UTF-8".into());
        }
        if piece.contains(&0) {
            return Err(BINARY.to_owned());
        }
        self.hash.update(piece);
        let mut rest = piece;
        while let (false, Some((&byte, after))) = (self.open.is_empty(), rest.split_first()) {
            let at = self.n_bytes - self.open.len() as u64;
            self.open.push(byte);
            (rest, self.n_bytes) = (after, self.n_bytes + 1);
            match std::str::from_utf8(&self.open) {
                Ok(_) => self.open.clear(),
                Err(error) if error.error_len().is_some() => return Err(not_utf8(at)),
                Err(_) => {}
            }
        }
        if let Err(error) = std::str::from_utf8(rest) {
            let valid = error.valid_up_to();
            match error.error_len() {
                Some(_) => return Err(not_utf8(self.n_bytes + valid as u64)),
                None => self.open = rest[valid..].to_vec(),
            }
        }
        self.n_bytes += rest.len() as u64;
        Ok(())
    }

    /// The number of bytes and their SHA-256, in hex.
    ///
    /// # Errors
    /// When the last character is not whole.
    pub fn finish(self) -> Result<(u64, String), String> {
        if !self.open.is_empty() {
            return Err(not_utf8(self.n_bytes - self.open.len() as u64));
        }
        let hash = hex(&self.hash.finalize());
        Ok((self.n_bytes, hash))
    }
}

fn not_utf8(at: u64) -> String {
    format!(
        "the byte at {at} is no UTF-8; is it in another encoding, such as Latin-1 (iconv -f LATIN1 -t UTF-8)?"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&[u8]]) -> Result<(u64, String), String> {
        let mut check = Check::default();
        pieces.iter().try_for_each(|piece| check.take(piece))?;
        check.finish()
    }

    #[test]
    fn check_names_what_is_not_utf8() {
        assert!(check(&[b"\xFF\xFEh\0"]).unwrap_err().contains("UTF-16"));
        assert!(check(&[b"ca\xF1a"]).unwrap_err().contains("byte at 2"));
        assert!(check(&[b"ab\0c"]).unwrap_err().contains("NUL bytes"));
        assert!(check(&[b"abc", b"de\xF1", b"a"]).unwrap_err().contains("byte at 5"));
        assert!(check(&[b"abc\xE2\x82"]).unwrap_err().contains("byte at 3"));
    }

    #[test]
    fn check_does_not_depend_on_where_pieces_end() {
        let text = "añ€😀b".as_bytes();
        let whole = check(&[text]).unwrap();
        assert_eq!(whole.0, 11);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(check(&bytes).unwrap(), whole);
        assert_eq!(check(&[&text[..4], &text[4..]]).unwrap(), whole);
    }
}
