//! Pieces of markup that several pages have.

use super::escape::escape;
use std::fmt::Write;

/// A table. Cells are text; the first of a row names it.
pub(super) struct Table<'a> {
    pub(super) caption: &'a str,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Row>,
    /// Columns from the left that hold words; the others hold numbers, and are set right.
    pub(super) left: usize,
}

/// A row of a table.
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// Whether the row is the one that the page is about.
    pub(super) chosen: bool,
}

impl Row {
    pub(super) fn new(cells: Vec<String>) -> Row {
        Row { cells, chosen: false }
    }
}

impl Table<'_> {
    /// The table in a box of its own, which scrolls where it is wider than the page.
    pub(super) fn html(&self) -> String {
        let tall = if self.rows.len() > 20 { " tall" } else { "" };
        let class = |at: usize| if at < self.left { " class=\"left\"" } else { "" };
        let caption = escape(self.caption);
        let mut out = format!(
            "<div class=\"scroll{tall}\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>\
             <caption><span>{caption}</span></caption><thead><tr>"
        );
        for (at, text) in self.head.iter().enumerate() {
            let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(at), escape(text));
        }
        out += "</tr></thead><tbody>\n";
        for row in &self.rows {
            out += if row.chosen { "<tr class=\"chosen\">" } else { "<tr>" };
            for (at, text) in row.cells.iter().enumerate() {
                let text = escape(text);
                let _ = match at {
                    0 => write!(out, "<th scope=\"row\"{}>{text}</th>", class(0)),
                    _ if text.len() > 60 => write!(out, "<td class=\"wrap\">{text}</td>"),
                    at => write!(out, "<td{}>{text}</td>", class(at)),
                };
            }
            out += "</tr>\n";
        }
        out + "</tbody></table></div>\n"
    }

    /// The table behind a line that opens it.
    pub(super) fn folded(&self, summary: &str) -> String {
        format!("<details><summary>{}</summary>{}</details>\n", escape(summary), self.html())
    }
}

/// The head of a page: what kind of page it is, what it is about, and a line on that.
pub(super) fn header(kicker: &str, subject: &str, sub: &str) -> String {
    format!(
        "<header><p class=\"kicker\">{}</p>\n<h1>{}</h1>\n<p class=\"sub\">{}</p></header>\n",
        escape(kicker),
        escape(subject),
        escape(sub)
    )
}

/// The answer before anything else: the claim, a line below it, and figures as tiles (name, value, note).
pub(super) fn answer(
    claim: &str,
    sub: &str,
    tiles: &[(&str, String, String)],
    without_script: &str,
) -> String {
    let tile = |(name, value, note): &(&str, String, String)| {
        let (name, value, note) = (escape(name), escape(value), escape(note));
        format!("<div class=\"tile\"><dt>{name}</dt><dd>{value} <small>{note}</small></dd></div>\n")
    };
    format!(
        "<section class=\"answer\" aria-label=\"The answer\"><p class=\"claim\">{}</p>\n<p class=\"sub\">{}</p>\n\
         <dl class=\"tiles\">{}</dl>\n<noscript><p class=\"note warn\">{}</p></noscript></section>\n",
        escape(claim),
        escape(sub),
        tiles.iter().map(tile).collect::<String>(),
        escape(without_script)
    )
}

/// Choices of which one holds, as buttons: the name that the script knows them by, and value and words of each. The
/// first holds.
pub(super) fn switch(legend: &str, name: &str, choices: &[(String, &str)]) -> String {
    let mut out = format!("<fieldset class=\"switch\"><legend>{}</legend>", escape(legend));
    for (at, (value, words)) in choices.iter().enumerate() {
        let checked = if at == 0 { " checked" } else { "" };
        let (value, words) = (escape(value), escape(words));
        let _ = write!(
            out,
            "<label><input type=\"radio\" name=\"{name}\" value=\"{value}\"{checked}>{words}</label> "
        );
    }
    out + "</fieldset>"
}

/// Lines of small print.
pub(super) fn notes<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    lines.into_iter().map(|line| format!("<p class=\"note\">{}</p>\n", escape(line))).collect()
}

/// A section with a heading and, below it, a note.
pub(super) fn section(id: &str, heading: &str, note: &str, body: &str) -> String {
    let note =
        if note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>\n", escape(note)) };
    format!(
        "<section aria-labelledby=\"{id}\"><h2 id=\"{id}\">{}</h2>\n{note}{body}</section>\n",
        escape(heading)
    )
}

/// What the lines of a chart are: class and words.
pub(super) fn key(lines: &[(&str, &str)]) -> String {
    let mut out = String::from("<div class=\"key needs-script\">");
    for (class, text) in lines {
        let _ = write!(
            out,
            "<span><svg width=\"26\" height=\"8\" aria-hidden=\"true\"><path d=\"M1 4H25\" class=\"line {class}\"/></svg>{}</span> ",
            escape(text)
        );
    }
    out + "</div>\n"
}

/// Ids with runs in short: `0–3, 7`.
pub(super) fn ranges(ids: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &id in ids {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => parts.push((id, id)),
        }
    }
    let text = |&(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_ids_are_written_in_short() {
        assert_eq!(ranges(&[0, 1, 2, 3, 5, 6, 9]), "0–3, 5, 6, 9");
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[u32::MAX]), "4294967295");
    }

    #[test]
    fn cells_of_a_table_are_text() {
        let row = Row { cells: vec!["<b>".into(), "&".into()], chosen: true };
        let table =
            Table { caption: "\"c\"", head: vec!["<h>".into(), "x".into()], rows: vec![row], left: 0 };
        let html = table.html();
        assert!(
            html.contains("<tr class=\"chosen\"><th scope=\"row\">&lt;b&gt;</th><td>&amp;</td></tr>"),
            "{html}"
        );
        assert!(html.contains("aria-label=\"&quot;c&quot;\"") && !html.contains("<h>"), "{html}");
    }
}
