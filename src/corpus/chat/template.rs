//! Chat templates: Jinja, as the templates of models use it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Steps of one rendering at most, each an instruction or 64 bytes of text: far more than a long conversation needs,
/// and an end to a template that has none.
const FUEL: u64 = 20_000_000;

/// What Hugging Face's `apply_chat_template` lets templates use, but for the date: see [`strftime`].
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters are valid"));
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |what: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, what))
    });
    environment.add_function("strftime_now", |format: String| strftime(&format));
    environment.add_filter("tojson", to_json);
    environment
}

/// A template as the engine takes it: lines end as Jinja2 makes them end, and blocks that only mark what an assistant
/// wrote become blocks that do nothing.
pub(super) fn prepare(template: &str) -> String {
    let template = template.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(template.len());
    let mut rest = template.as_str();
    while let Some((before, tag)) = rest.split_once("{%") {
        let Some((inner, after)) = tag.split_once("%}") else { break };
        out.push_str(before);
        out.push_str("{%");
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match word {
            "generation" => out.push_str(&inner.replace(word, "if true")),
            "endgeneration" => out.push_str(&inner.replace(word, "endif")),
            _ => out.push_str(inner),
        }
        out.push_str("%}");
        rest = after;
    }
    out + rest
}

/// The date in Python's notation. It is always Thursday, 1 January 2026, 00:00: the same conversations give the same
/// tokens on any day.
fn strftime(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let code = chars.next();
        let short = code == Some('-');
        text.push_str(match if short { chars.next() } else { code } {
            Some('d' | 'm') if short => "1",
            Some('I') if short => "12",
            Some('H' | 'M' | 'S') if short => "0",
            Some('j') if short => "1",
            Some('d' | 'm') => "01",
            Some('e') => " 1",
            Some('Y') => "2026",
            Some('y') => "26",
            Some('B') => "January",
            Some('b' | 'h') => "Jan",
            Some('A') => "Thursday",
            Some('a') => "Thu",
            Some('j') => "001",
            Some('H' | 'M' | 'S') => "00",
            Some('I') => "12",
            Some('p') => "AM",
            Some('F') => "2026-01-01",
            Some('D' | 'x') => "01/01/26",
            Some('T' | 'X') => "00:00:00",
            Some('R') => "00:00",
            Some('c') => "Thu Jan  1 00:00:00 2026",
            Some('z' | 'Z') => "",
            Some('%') => "%",
            _ => {
                let what = format!("strftime_now: the format {format:?} is not understood");
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
        });
    }
    Ok(text)
}

/// JSON as Python's `json.dumps` writes it with `ensure_ascii=False`: the filter of Jinja itself escapes for HTML,
/// which no template of a model wants.
fn to_json(
    state: &State<'_, '_>,
    value: &Value,
    indent: Option<usize>,
    options: Kwargs,
) -> Result<String, Error> {
    let failed =
        |error: serde_json::Error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}"));
    let indent = indent.or(options.get("indent")?);
    let separators: Option<Vec<String>> = options.get("separators")?;
    let sorted: Option<bool> = options.get("sort_keys")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut json = Vec::new();
    if let Some(indent) = indent {
        let indent = vec![b' '; indent.min(80)];
        let formatter = PrettyFormatter::with_indent(&indent);
        serialize(value, sorted == Some(true), &mut Serializer::with_formatter(&mut json, formatter))
    } else {
        let (between, after_key) = match separators.as_deref() {
            Some([between, after_key]) => (between.as_str(), after_key.as_str()),
            _ => (", ", ": "),
        };
        let formatter = Separated { between, after_key };
        serialize(value, sorted == Some(true), &mut Serializer::with_formatter(&mut json, formatter))
    }
    .map_err(failed)?;
    state.consume_fuel(json.len() as u64 / 64)?;
    Ok(String::from_utf8(json).expect("JSON is UTF-8"))
}

fn serialize<F: Formatter>(
    value: &Value,
    sorted: bool,
    serializer: &mut Serializer<&mut Vec<u8>, F>,
) -> serde_json::Result<()> {
    // The maps of serde_json are in the order of their keys.
    if sorted { serde_json::to_value(value)?.serialize(serializer) } else { value.serialize(serializer) }
}

/// One line, with these texts between entries, and between a key and its value.
struct Separated<'s> {
    between: &'s str,
    after_key: &'s str,
}

impl Formatter for Separated<'_> {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(self.between.as_bytes()) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(self.between.as_bytes()) }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.after_key.as_bytes())
    }
}
