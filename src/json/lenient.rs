//! JSON that others write and read, though it is none: half a surrogate pair in a string, and `NaN`.

use std::ops::AddAssign;

/// What was put right in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repairs {
    /// Escapes such as `\ud83d` without their other half, which became U+FFFD.
    pub surrogates: u64,
    /// `NaN`, `Infinity` and `-Infinity`, which became null.
    pub numbers: u64,
}

impl Repairs {
    /// Whether nothing was wrong.
    pub fn is_empty(self) -> bool {
        self == Repairs::default()
    }
}

impl AddAssign for Repairs {
    fn add_assign(&mut self, other: Repairs) {
        self.surrogates += other.surrogates;
        self.numbers += other.numbers;
    }
}

/// Reads a value from JSON, or from what Python's `json` takes for it.
pub(crate) fn from_text<T: serde::de::DeserializeOwned>(
    text: &str,
    repairs: &mut Repairs,
) -> serde_json::Result<T> {
    serde_json::from_str(text).or_else(|error| {
        let (mended, found) = mend(text);
        if found.is_empty() {
            return Err(error);
        }
        // Where more is wrong, the first error is about the text as it stands.
        let value = serde_json::from_str(&mended)?;
        *repairs += found;
        Ok(value)
    })
}

fn mend(text: &str) -> (String, Repairs) {
    let mut out = String::with_capacity(text.len());
    let mut repairs = Repairs::default();
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let taken = if in_string {
            match c {
                '\\' => escape(rest, &mut out, &mut repairs),
                _ => {
                    in_string = c != '"';
                    out.push(c);
                    c.len_utf8()
                }
            }
        } else if let Some(word) =
            ["NaN", "Infinity", "-Infinity"].iter().find(|word| rest.starts_with(**word))
        {
            repairs.numbers += 1;
            out.push_str("null");
            word.len()
        } else {
            in_string = c == '"';
            out.push(c);
            c.len_utf8()
        };
        rest = &rest[taken..];
    }
    (out, repairs)
}

/// Copies one escape, or puts half a surrogate pair right; gives the bytes that it has.
fn escape(rest: &str, out: &mut String, repairs: &mut Repairs) -> usize {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    };
    let (high, low) = (0xD800..0xDC00, 0xDC00..0xE000);
    let taken = match (unit(0), unit(6)) {
        (Some(first), Some(second)) if high.contains(&first) && low.contains(&second) => 12,
        (Some(first), _) if high.contains(&first) || low.contains(&first) => {
            repairs.surrogates += 1;
            out.push('\u{FFFD}');
            return 6;
        }
        (Some(_), _) => 6,
        // The backslash and what it stands before.
        (None, _) => rest.chars().take(2).map(char::len_utf8).sum(),
    };
    out.push_str(&rest[..taken]);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (serde_json::Value, Repairs) {
        let mut repairs = Repairs::default();
        (from_text(text, &mut repairs).unwrap(), repairs)
    }

    #[test]
    fn half_a_surrogate_pair_becomes_the_replacement_character() {
        for (text, wanted, count) in [
            (r#""cut \ud83d""#, "cut \u{FFFD}", 1),
            (r#""\ude00 \ud83d\ude00 \ud83dx""#, "\u{FFFD} \u{1F600} \u{FFFD}x", 2),
            (r#""\\ud83d""#, "\\ud83d", 0),
            (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}\u{1F600}", 1),
        ] {
            let (value, repairs) = read(text);
            assert_eq!(value, wanted, "{text}");
            assert_eq!(repairs, Repairs { surrogates: count, numbers: 0 }, "{text}");
        }
    }

    #[test]
    fn numbers_that_are_none_become_null() {
        let (value, repairs) = read(r#"{"a":NaN,"b":[Infinity,-Infinity],"NaN":"NaN"}"#);
        assert_eq!(value, serde_json::json!({ "a": null, "b": [null, null], "NaN": "NaN" }));
        assert_eq!(repairs.numbers, 3);
    }

    #[test]
    fn what_is_no_json_stays_an_error() {
        for text in ["{", "\"\\ud83d", "nan", "[1,]", "\"\\u12\"", "\"\\"] {
            assert!(from_text::<serde_json::Value>(text, &mut Repairs::default()).is_err(), "{text}");
        }
    }
}
