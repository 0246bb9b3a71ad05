//! Long texts in pieces: cut where no token can cross, so that the pieces have the tokens of the whole.

use crate::llama::{Token, Tokenizer, Vocab};
use std::collections::HashSet;

/// Bytes of a piece, about.
pub(super) const PIECE: usize = 1 << 19;

/// Where a text may be cut.
///
/// A cut is safe when no token holds the characters on both sides of it next to each other, and when the words that
/// llama.cpp's regular expressions find end there whatever follows. Between a letter and the blank before the next word,
/// and behind the newline between two lines of which the second begins with a letter, the latter holds; for the former
/// each vocabulary is looked through for tokens that cross.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Whether nothing is known of how the vocabulary makes tokens.
    unknown: bool,
    /// What stands before a blank in a token.
    before_blank: HashSet<char>,
    /// What stands behind a newline in a token.
    behind_newline: HashSet<char>,
}

/// A blank, and a newline, as vocabularies spell them: as they stand, in the letters of byte-pair vocabularies, and in
/// that of SentencePiece.
const BLANKS: [char; 3] = [' ', '\u{120}', '\u{2581}'];
const NEWLINES: [char; 2] = ['\n', '\u{10A}'];

/// The letter by which byte-pair vocabularies spell a byte.
fn letter_of(byte: u8) -> char {
    let code = match byte {
        0..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
        _ => u32::from(byte),
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

impl Cuts {
    /// The cuts that are safe with `vocab`.
    pub fn new(vocab: Vocab<'_>) -> Self {
        if vocab.tokenizer() == Tokenizer::Other {
            return Cuts { unknown: true, ..Cuts::default() };
        }
        let tokens = Token::try_from(vocab.len()).unwrap_or(Token::MAX);
        Self::without_crossing((0..tokens).filter_map(|token| vocab.text(token)))
    }

    fn without_crossing<'t>(tokens: impl Iterator<Item = &'t str>) -> Self {
        let mut cuts = Cuts::default();
        for text in tokens {
            for (left, right) in text.chars().zip(text.chars().skip(1)) {
                if BLANKS.contains(&right) {
                    cuts.before_blank.insert(left);
                }
                if NEWLINES.contains(&left) {
                    cuts.behind_newline.insert(right);
                }
            }
        }
        cuts
    }

    /// The first safe cut of `text` at the byte `from` or behind it. The last characters are left for when more is known.
    pub fn find(&self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        (!self.unknown).then(|| (from.max(1)..bytes.len()).find(|&at| self.is_safe(text, at)))?
    }

    fn is_safe(&self, text: &str, at: usize) -> bool {
        let bytes = text.as_bytes();
        if bytes[at] == b' ' {
            let next = text[at + 1..].chars().next();
            let left = text[..at].chars().next_back();
            return next.is_some_and(char::is_alphabetic)
                && left.is_some_and(|left| left.is_alphabetic() && !self.before_blank.contains(&left))
                && !self.before_blank.contains(&letter_of(bytes[at - 1]));
        }
        bytes[at - 1] == b'\n' && text.is_char_boundary(at) && {
            let right = text[at..].chars().next();
            let left = text[..at - 1].chars().next_back();
            left.is_some_and(|left| !left.is_whitespace() && !left.is_control())
                && right.is_some_and(|right| right.is_alphabetic() && !self.behind_newline.contains(&right))
                && !self.behind_newline.contains(&letter_of(bytes[at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(tokens: &[&str]) -> Cuts {
        Cuts::without_crossing(tokens.iter().copied())
    }

    #[test]
    fn cuts_are_found_between_words_and_lines() {
        let all = cuts(&["\u{120}the", "\u{10A}\u{10A}", ")\u{10A}", "\u{2581}a", "e"]);
        assert_eq!(all.find("one two", 0), Some(3));
        assert_eq!(all.find("one two", 4), None);
        assert_eq!(all.find("1.\ntwo", 0), Some(3));
        assert_eq!(all.find("привет мир", 0), Some(12));
        assert_eq!(all.find("是。\n日本", 0), Some(7));
        for text in ["", "a", "a ", "one  two", "one 2", "1 two", "1.\n\ntwo", "1 \ntwo", "1.\r\n2", "日本語"]
        {
            assert_eq!(all.find(text, 0), None, "{text:?}");
        }
        assert_eq!(Cuts { unknown: true, ..all }.find("one two", 0), None);
    }

    #[test]
    fn cuts_are_unsafe_where_a_token_crosses() {
        let crossing = cuts(&["of\u{120}the", "\nif"]);
        assert_eq!(crossing.find("of the one", 0), Some(6));
        assert_eq!(crossing.find("a\nif", 0), None);
        assert_eq!(crossing.find("a\nof", 0), Some(2));
    }

    #[test]
    fn cuts_see_the_bytes_of_byte_pair_vocabularies() {
        // "т " ends in the bytes D1 82 20, "\nд" begins with 0A D0.
        let bytes: String = [0xD1, 0x82, 0x20].map(letter_of).iter().collect();
        assert_eq!(cuts(&[&bytes]).find("тет тот", 0), None);
        assert_eq!(cuts(&[&bytes]).find("про тот", 0), Some(6));
        let bytes: String = [0x0A, 0xD0].map(letter_of).iter().collect();
        assert_eq!(cuts(&[&bytes]).find("a\nда", 0), None);
    }
}
