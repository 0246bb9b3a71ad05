//! Rust source as tokens, as far as imports need it: words and punctuation with their lines, without comments, strings
//! and numbers, and with what only tests compile set apart.

/// A word, `::`, or one character of punctuation.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A file's tokens.
#[derive(Debug, Default)]
pub struct Tokens {
    /// What the crate compiles.
    pub code: Vec<Token>,
    /// What only its tests compile.
    pub tests: Vec<Token>,
    /// Lines of the file that are not a test's.
    pub lines: usize,
    /// Modules that are declared for tests alone, and stand in files of their own.
    pub test_modules: Vec<String>,
}

/// Splits `text`, and sets the items under `#[cfg(test)]` apart.
pub fn tokens(text: &str) -> Tokens {
    let all = split(text);
    let mut found = Tokens { lines: text.lines().count(), ..Tokens::default() };
    let mut at = 0;
    while at < all.len() {
        if !starts_with(&all[at..], &["#", "[", "cfg", "(", "test", ")", "]"]) {
            found.code.push(all[at].clone());
            at += 1;
            continue;
        }
        let end = at + 7 + item_len(&all[at + 7..]);
        let item = &all[at..end.min(all.len())];
        if let Some(last) = item.last() {
            found.lines -= last.line - all[at].line + 1;
        }
        if let [.., keyword, name, end] = item
            && (keyword.text.as_str(), end.text.as_str()) == ("mod", ";")
        {
            found.test_modules.push(name.text.clone());
        }
        found.tests.extend_from_slice(item);
        at = end;
    }
    found
}

/// Whether `tokens` begin with `texts`.
pub fn starts_with(tokens: &[Token], texts: &[&str]) -> bool {
    tokens.len() >= texts.len() && tokens.iter().zip(texts).all(|(token, text)| token.text == *text)
}

/// Tokens of the item or statement that `tokens` begin with: up to its `;`, or to the brace that closes its body.
fn item_len(tokens: &[Token]) -> usize {
    let is_use =
        tokens.iter().take_while(|token| token.text != ";" && token.text != "{").any(|t| t.text == "use");
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !is_use {
                    return index + 1;
                }
            }
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn split(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (len, is_token) = next(rest, first);
        let (part, after) = rest.split_at(len);
        if is_token {
            tokens.push(Token { text: part.to_owned(), line });
        }
        line += part.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Bytes of what `rest` begins with, and whether it is a token to keep.
fn next(rest: &str, first: char) -> (usize, bool) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let end_of =
        |mark: &str, from: usize| rest[from..].find(mark).map_or(rest.len(), |at| from + at + mark.len());
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    if rest.starts_with("::") {
        return (2, true);
    }
    if first == '"' {
        return (quoted(rest, 1), false);
    }
    if first == '\'' {
        let mut after = rest[1..].chars();
        return match (after.next(), after.next()) {
            (Some('\\'), _) => (end_of("'", 3.min(rest.len())), false),
            (Some(c), Some('\'')) => (2 + c.len_utf8(), false),
            _ => (1, false), // the mark of a lifetime
        };
    }
    let after_prefix = &rest[word..];
    if matches!(&rest[..word], "r" | "br" | "cr") && after_prefix.starts_with(['"', '#']) {
        let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
        // `r#name` is a word.
        if after_prefix[hashes..].starts_with('"') {
            return (end_of(&format!("\"{}", "#".repeat(hashes)), word + hashes + 1), false);
        }
    }
    if matches!(&rest[..word], "b" | "c") && after_prefix.starts_with('"') {
        return (quoted(rest, 2), false);
    }
    match word {
        0 => (first.len_utf8(), !first.is_whitespace()),
        _ => (word, !first.is_ascii_digit()),
    }
}

/// The end of a string whose content begins at `from`.
fn quoted(rest: &str, from: usize) -> usize {
    let mut escaped = false;
    for (at, c) in rest[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return from + at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(part) = rest.get(at..).filter(|part| !part.is_empty()) {
        if part.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if part.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += part.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}
