//! CSV traces.

use super::TraceMeta;
use super::tokens::{LayerLine, Lines};

/// A line of column names, then one line a token and layer. Lists are separated by spaces, so no field needs quotes.
pub(super) struct CsvLines {
    columns: Vec<Column>,
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Session,
    Turn,
    Phase,
    Ubatch,
    Position,
    Token,
    Layer,
    Experts,
    Used,
    Values,
    ZMin,
    ZMean,
    ZStd,
}

const COLUMNS: [(&str, Column); 13] = [
    ("session", Column::Session),
    ("turn", Column::Turn),
    ("phase", Column::Phase),
    ("ubatch", Column::Ubatch),
    ("position", Column::Position),
    ("token", Column::Token),
    ("layer", Column::Layer),
    ("experts", Column::Experts),
    ("used", Column::Used),
    ("values", Column::Values),
    ("z_min", Column::ZMin),
    ("z_mean", Column::ZMean),
    ("z_std", Column::ZStd),
];

impl Lines for CsvLines {
    fn begin(first: &str) -> Result<(Self, Option<TraceMeta>, bool), String> {
        let mut columns = Vec::new();
        for name in first.split(',') {
            let name = bare(name);
            let column = COLUMNS.iter().find(|(known, _)| *known == name);
            let (_, column) = column.ok_or_else(|| {
                let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
                format!("{name:?} is not a column of a trace; they are {}", known.join(", "))
            })?;
            if columns.contains(column) {
                return Err(format!("the column {name:?} is there twice"));
            }
            columns.push(*column);
        }
        for (name, column) in [("layer", Column::Layer), ("experts", Column::Experts)] {
            if !columns.contains(&column) {
                return Err(format!("there is no column {name:?}"));
            }
        }
        Ok((CsvLines { columns }, None, true))
    }

    fn parse(&self, line: &str) -> Result<LayerLine, String> {
        let fields: Vec<&str> = line.split(',').map(bare).collect();
        if fields.len() != self.columns.len() {
            return Err(format!("{} fields for {} columns", fields.len(), self.columns.len()));
        }
        let mut read = LayerLine::default();
        let mut z = [None; 3];
        for (column, field) in self.columns.iter().zip(fields) {
            if field.is_empty() {
                continue;
            }
            match column {
                Column::Session => read.session = number(field)?,
                Column::Turn => read.turn = number(field)?,
                Column::Phase => {
                    read.prefill = match field {
                        "prefill" => true,
                        "decode" => false,
                        other => return Err(format!("{other:?} is neither prefill nor decode")),
                    }
                }
                Column::Ubatch => read.ubatch = Some(number(field)?),
                Column::Position => read.position = Some(number(field)?),
                Column::Token => read.token = Some(number(field)?),
                Column::Layer => read.layer = number(field)?,
                Column::Experts => {
                    read.experts = field.split_whitespace().map(number).collect::<Result<_, _>>()?
                }
                Column::Used => read.used = Some(number(field)?),
                Column::Values => {
                    read.values = field.split_whitespace().map(number).collect::<Result<_, _>>()?
                }
                Column::ZMin => z[0] = Some(number(field)?),
                Column::ZMean => z[1] = Some(number(field)?),
                Column::ZStd => z[2] = Some(number(field)?),
            }
        }
        if let [Some(min), Some(mean), Some(std)] = z {
            read.z = Some([min, mean, std]);
        }
        Ok(read)
    }
}

/// A field without the quotes that spreadsheets put around it.
fn bare(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).unwrap_or(field).trim()
}

fn number<T: std::str::FromStr>(field: &str) -> Result<T, String> {
    field.parse().map_err(|_| format!("{field:?} is not a number of this column"))
}
