//! Texts of a file, which llama.cpp takes as bytes.

/// A key or name as messages and rules see it: up to its first NUL, where llama.cpp's comparisons end, with what is not
/// UTF-8 replaced.
pub(super) fn shown(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
