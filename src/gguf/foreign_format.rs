//! Names what a file is that does not begin with the GGUF magic.

use super::malformation::Malformation;

/// Bytes from the start of the file that [`not_gguf`] looks at.
pub(super) const FOREIGN_FORMAT_BYTES: usize = 64;

/// Why a file that begins with `start` (at most [`FOREIGN_FORMAT_BYTES`]) is no GGUF file.
pub(super) fn not_gguf(start: &[u8]) -> Malformation {
    let format = |format| Malformation::OtherFormat { format };
    if start.is_empty() {
        return Malformation::Empty;
    }
    if start.iter().all(|&byte| byte == 0) {
        return Malformation::ZeroFilled;
    }
    if start.starts_with(b"version https://git-lfs") {
        return Malformation::LfsPointer;
    }
    match start {
        [b'P', b'K', 3, 4, ..] => return format("a ZIP archive (perhaps a PyTorch checkpoint)"),
        [0x1f, 0x8b, ..] => return format("a gzip archive"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return format("a zstd archive"),
        [b'7', b'z', 0xbc, 0xaf, ..] => return format("a 7z archive"),
        // These magics are little-endian numbers, so their letters stand in reverse.
        [b'l' | b'f' | b't' | b'a', b'm' | b'j' | b'l', b'g', b'g', ..] => {
            return format("a model in a format that came before GGUF");
        }
        // A u64 header length, then JSON.
        [_, _, _, _, _, 0, 0, 0, b'{', b'"' | b' ' | b'}', ..] => return format("a safetensors file"),
        _ => {}
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start().to_ascii_lowercase();
    if text.starts_with(b"<!doctype html") || text.starts_with(b"<html") || text.starts_with(b"<!--") {
        return Malformation::HtmlPage;
    }
    if text.starts_with(b"<?xml") || text.starts_with(b"<error") {
        return format("an XML answer of a server");
    }
    if text.starts_with(b"{\"") || text.starts_with(b"{\n") {
        return format("a JSON text");
    }
    Malformation::WrongMagic { magic: start[..start.len().min(4)].to_vec() }
}
