//! Tables of text.

use super::style::TextStyle;
use comfy_table::{CellAlignment, Table, presets};

/// A table without lines; columns are set right except the first `left`.
pub fn plain(header: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_cell_alignment(if at < left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table for whoever reads it. Where it is wider than their terminal, its columns go into several tables, one below
/// another, each of which begins with the first `keys` columns; in a pipe its lines stay whole.
pub fn fitting(
    style: &TextStyle,
    header: &[&str],
    rows: &[Vec<String>],
    (keys, left): (usize, usize),
) -> String {
    let parts = parts(style.table_width(), header, rows, keys);
    let table = |columns: &Vec<usize>| {
        let header: Vec<&str> = columns.iter().map(|&at| header[at]).collect();
        let row = |row: &Vec<String>| columns.iter().map(|&at| row[at].clone()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        style.table(plain(&header, &rows, columns.iter().filter(|&&at| at < left).count()))
    };
    parts.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// The columns of each part.
fn parts(width: usize, header: &[&str], rows: &[Vec<String>], keys: usize) -> Vec<Vec<usize>> {
    let wide = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([header[at].chars().count()]).max().unwrap_or(0) + 2
    };
    let first: Vec<usize> = (0..keys.min(header.len())).collect();
    let keys_wide: usize = first.iter().map(|&at| wide(at)).sum();
    let (mut parts, mut used) = (vec![first.clone()], keys_wide);
    for at in first.len()..header.len() {
        // The padding of the last column is not printed.
        let fits = used + wide(at) <= width.saturating_add(2);
        if !fits && parts.last().is_some_and(|part| part.len() > first.len()) {
            parts.push(first.clone());
            used = keys_wide;
        }
        parts.last_mut().expect("there is one from the start").push(at);
        used += wide(at);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 4] = ["name", "first", "second", "third"];

    fn rows() -> Vec<Vec<String>> {
        vec![["a", "1", "2", "3"].map(String::from).to_vec(), ["b", "4", "5", "6"].map(String::from).to_vec()]
    }

    #[test]
    fn table_that_fits_is_one() {
        let text = fitting(&TextStyle::terminal(40, false), &HEADER, &rows(), (1, 1));
        assert_eq!(text, plain(&HEADER, &rows(), 1));
    }

    #[test]
    fn columns_that_do_not_fit_go_below_with_their_names() {
        // 4 + 2, 5 + 2, 6 + 2, 5: the last column is one too many.
        let parts = |width| parts(width, &HEADER, &rows(), 1);
        assert_eq!(parts(26), [[0, 1, 2, 3]]);
        assert_eq!(parts(25), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(parts(1), [[0, 1], [0, 2], [0, 3]]);
    }

    #[test]
    fn lines_in_a_pipe_stay_whole() {
        let long = vec![vec!["x".repeat(300), "1".into(), "2".into(), "3".into()]];
        assert_eq!(fitting(&TextStyle::default(), &HEADER, &long, (1, 1)).lines().count(), 2);
    }

    #[test]
    fn headers_are_set_back_only_with_colours() {
        let text = |colour| fitting(&TextStyle::terminal(80, colour), &HEADER, &rows(), (1, 1));
        assert!(text(true).starts_with("\x1b[2mname") && !text(false).contains('\x1b'));
    }
}
