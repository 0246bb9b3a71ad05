//! Long texts in pieces: cut where no token can cross, so that the pieces have the tokens of the whole.

use crate::llama::{Token, Tokenizer, Vocab};

/// Bytes of a piece, about.
pub(super) const PIECE: usize = 1 << 19;

/// Where a text may be cut.
///
/// A cut is safe when no token holds the characters on both sides of it next to each other, and when the words that
/// llama.cpp's regular expressions find end there whatever follows. Between a letter and the blank before the next word,
/// and behind the newline between two lines of which the second begins with a letter, both can be said of nearly every
/// vocabulary; each vocabulary is looked through for tokens that cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cuts {
    before_blank: bool,
    behind_newline: bool,
}

/// A blank, and a newline, as vocabularies spell them: as they stand, in the letters of byte-pair vocabularies, and in
/// that of SentencePiece.
const BLANKS: [char; 3] = [' ', '\u{120}', '\u{2581}'];
const NEWLINES: [char; 2] = ['\n', '\u{10A}'];

impl Cuts {
    /// The cuts that are safe with `vocab`.
    pub fn new(vocab: Vocab<'_>) -> Self {
        if vocab.tokenizer() == Tokenizer::Other {
            return Cuts { before_blank: false, behind_newline: false };
        }
        let tokens = Token::try_from(vocab.len()).unwrap_or(Token::MAX);
        Self::without_crossing((0..tokens).filter_map(|token| vocab.text(token)))
    }

    fn without_crossing<'t>(tokens: impl Iterator<Item = &'t str>) -> Self {
        let mut cuts = Cuts { before_blank: true, behind_newline: true };
        for text in tokens {
            for (left, right) in text.chars().zip(text.chars().skip(1)) {
                cuts.before_blank &= !(left.is_ascii_alphabetic() && BLANKS.contains(&right));
                cuts.behind_newline &= !(NEWLINES.contains(&left) && right.is_ascii_alphabetic());
            }
        }
        cuts
    }

    /// Whether there is any safe cut at all.
    pub fn any(self) -> bool {
        self.before_blank || self.behind_newline
    }

    /// The first safe cut of `text` at `from` or behind it.
    pub fn find(self, text: &str, from: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        (from.max(2)..bytes.len().saturating_sub(1)).find(|&at| {
            let (left, right) = (bytes[at - 1], bytes[at]);
            let before_blank =
                left.is_ascii_alphabetic() && right == b' ' && bytes[at + 1].is_ascii_alphabetic();
            let behind_newline =
                bytes[at - 2].is_ascii_graphic() && left == b'\n' && right.is_ascii_alphabetic();
            (self.before_blank && before_blank) || (self.behind_newline && behind_newline)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Cuts = Cuts { before_blank: true, behind_newline: true };

    #[test]
    fn cuts_are_found_between_words_and_lines() {
        assert_eq!(ALL.find("one two", 0), Some(3));
        assert_eq!(ALL.find("one two", 4), None);
        assert_eq!(ALL.find("1.\ntwo", 0), Some(3));
        for text in
            ["", "a", "a ", "one  two", "one 2", "1 two", "1.\n\ntwo", "1 \ntwo", "1.\r\ntwo", "ñ\ntwo"]
        {
            assert_eq!(ALL.find(text, 0), None, "{text:?}");
        }
    }

    #[test]
    fn cuts_are_unsafe_where_a_token_crosses() {
        let cuts = |tokens: &[&str]| Cuts::without_crossing(tokens.iter().copied());
        assert_eq!(cuts(&["\u{120}the", "\u{10A}\u{10A}", ")\u{10A}", "\u{2581}a", "e"]), ALL);
        assert_eq!(cuts(&["of\u{120}the"]), Cuts { before_blank: false, ..ALL });
        assert_eq!(cuts(&["x", "\nif"]), Cuts { behind_newline: false, ..ALL });
        assert!(!cuts(&["of the", "\u{10A}if"]).any());
    }
}
