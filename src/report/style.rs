//! How reports look: in a pipe plain and 80 columns wide, on a terminal as wide as that, with colours and sparklines.

use super::wording::paragraph;

/// Columns that a report takes where nothing is known of its reader.
const WIDTH: usize = 80;

/// Lines of prose are not easier to read for being longer.
const PROSE_WIDTH: usize = 100;

/// The eight heights of a sparkline.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How text is written for whoever reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns that tables may take.
    pub width: usize,
    /// Whether headings stand out by escape sequences.
    pub colour: bool,
    /// Whether there are sparklines.
    pub graphics: bool,
}

impl Default for TextStyle {
    /// Plain text.
    fn default() -> Self {
        TextStyle { width: WIDTH, colour: false, graphics: false }
    }
}

impl TextStyle {
    /// For a terminal of `width` columns.
    pub fn terminal(width: usize, colour: bool) -> Self {
        TextStyle { width: width.max(40), colour, graphics: true }
    }

    /// Columns of prose.
    pub(super) fn prose(&self) -> usize {
        self.width.min(PROSE_WIDTH)
    }

    /// Columns of tables that nothing else bounds: those of the terminal, and any number in a pipe.
    pub(super) fn table_width(&self) -> usize {
        if self.graphics { self.width } else { usize::MAX }
    }

    /// A heading, in as many lines as it needs.
    pub(super) fn heading(&self, text: &str) -> String {
        let lines = paragraph(text, self.prose());
        let lines = lines.trim_end();
        if self.colour { format!("\x1b[1m{lines}\x1b[0m") } else { lines.to_owned() }
    }

    /// The first line of a table set back, the rest as it is.
    pub(super) fn table(&self, text: String) -> String {
        match text.split_once('\n').filter(|_| self.colour) {
            Some((head, rest)) => format!("\x1b[2m{head}\x1b[0m\n{rest}"),
            None => text,
        }
    }

    /// Shares as bars, the lowest as the smallest and 1 as the highest, in lines that fit; with the lowest.
    pub(super) fn sparkline(&self, shares: &[f64]) -> Option<(String, f64)> {
        let least = shares.iter().copied().reduce(f64::min).filter(|_| self.graphics)?;
        let room = (1.0 - least).max(f64::EPSILON);
        let bar = |share: &f64| BARS[(((share - least) / room * 7.0).round() as usize).min(7)];
        let lines = shares.chunks(self.width.max(1)).map(|part| {
            let bars: String = part.iter().map(bar).collect();
            if self.colour { format!("\x1b[36m{bars}\x1b[0m\n") } else { bars + "\n" }
        });
        Some((lines.collect(), least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_spans_the_lowest_share_to_all() {
        let style = TextStyle::terminal(80, false);
        assert_eq!(style.sparkline(&[0.5, 1.0, 0.75]), Some(("▁█▅\n".into(), 0.5)));
        assert_eq!(style.sparkline(&[1.0, 1.0]), Some(("▁▁\n".into(), 1.0)));
        assert_eq!(style.sparkline(&[]), None);
        assert_eq!(TextStyle::default().sparkline(&[0.5]), None);
    }

    #[test]
    fn sparkline_breaks_at_the_width() {
        let (lines, _) = TextStyle::terminal(40, true).sparkline(&[0.5; 94]).unwrap();
        assert_eq!(lines.lines().count(), 3);
        assert!(lines.lines().all(|line| line.starts_with("\x1b[36m") && line.ends_with("\x1b[0m")));
    }

    #[test]
    fn heading_breaks_at_the_width() {
        let text = "Share of the routing that the busiest experts of each layer cover:";
        let lines = TextStyle::terminal(40, false).heading(text);
        assert!(lines.lines().count() == 2 && lines.lines().all(|line| line.len() <= 40), "{lines}");
        assert!(TextStyle::terminal(40, true).heading(text).ends_with("cover:\x1b[0m"));
    }

    #[test]
    fn colours_are_left_out_where_they_are_not_wanted() {
        assert_eq!(TextStyle::default().heading("Layers"), "Layers");
        assert_eq!(TextStyle::default().table("a\nb\n".into()), "a\nb\n");
        let style = TextStyle::terminal(80, true);
        assert_eq!(style.heading("Layers"), "\x1b[1mLayers\x1b[0m");
        assert_eq!(style.table("a\nb\n".into()), "\x1b[2ma\x1b[0m\nb\n");
    }
}
