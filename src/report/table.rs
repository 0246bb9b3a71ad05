//! Plain tables.

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
