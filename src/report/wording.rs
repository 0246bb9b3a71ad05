//! How numbers and paragraphs are written in reports.

use crate::evaluate::Seen;

/// What a usage knows of a measured text, in words.
pub(crate) fn seen_text(seen: Seen) -> &'static str {
    match seen {
        Seen::Profiled => "profiled as well",
        Seen::HeldOut => "held out of the profile",
        Seen::Unseen => "not profiled",
    }
}

/// A share as a percentage with one decimal, rounded down: 100.0% is all.
pub fn percent(share: f64) -> String {
    format!("{}%", tenths(share))
}

/// The complement of [`percent`]: a lost share, rounded up.
pub(crate) fn percent_up(share: f64) -> String {
    format!("{:.1}%", ((share * 1000.0 - 1e-9).ceil() / 10.0).abs())
}

/// [`percent`] without its sign.
pub(crate) fn tenths(share: f64) -> String {
    // The division that gave the share may have fallen short of a tenth that it met.
    format!("{:.1}", (share * 1000.0 + 1e-9).floor() / 10.0)
}

/// A ratio with as many digits as a reader needs.
pub(crate) fn ratio(value: f64) -> String {
    if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A measured value with about three digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Whether a character turns the direction of the text behind it, so that a name could be read as another one.
pub(crate) fn turns_text(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// So many layers.
pub(crate) fn layers(count: usize) -> String {
    format!("{count} layer{}", if count == 1 { "" } else { "s" })
}

/// A number with thousands apart.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// At most `width` characters of a name.
pub(crate) fn short(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A paragraph broken at spaces so that no line has more than `width` columns, where words allow.
pub(crate) fn paragraph(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line from the start");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// With a capital letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A word of a command line as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
