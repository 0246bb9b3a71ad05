//! The rows, as `llama-bench` writes them: Markdown, CSV, JSON, or one JSON object a line.

use super::markdown::markdown;
use super::row::{cell, ratio, row};
use super::run::{BenchOptions, ModelBench};
use super::statistics::median;
use crate::json::Json;
use crate::llama::Backend;
use crate::units::ByteCount;
use std::str::FromStr;
use thiserror::Error;

/// In which form rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// A table for people.
    #[default]
    Markdown,
    /// One row a test, with a header.
    Csv,
    /// A list of objects.
    Json,
    /// An object a line.
    JsonLines,
}

/// No format of that name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no format is called {text:?}; there are md, csv, json and jsonl")]
pub struct FormatError {
    /// What was asked for.
    pub text: String,
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "md" => Ok(Self::Markdown),
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            _ => Err(FormatError { text: text.to_owned() }),
        }
    }
}

impl Format {
    /// The text of `benches`, whose ratios are against the first of them.
    pub fn text(self, benches: &[ModelBench], options: &BenchOptions, backend: &Backend) -> String {
        let pairs = || benches.iter().flat_map(|bench| bench.tests.iter().map(move |test| (bench, test)));
        let rows = || pairs().map(|pair| row(benches, pair, options, backend)).collect::<Vec<Json>>();
        match self {
            Self::Markdown => markdown(benches, &rows(), &self::rows(benches)),
            Self::Csv => csv(&rows()),
            Self::Json => crate::json::to_text(&rows()),
            Self::JsonLines => rows().iter().map(|row| row.to_text() + "\n").collect(),
        }
    }
}

/// The names of the columns that people read.
pub const COLUMNS: [&str; 8] =
    ["model", "size", "test", "median t/s", "mean ± sd", "ratio", "load s", "peak"];

/// What people read: a row a test.
pub fn rows(benches: &[ModelBench]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for bench in benches {
        let mut loads = bench.load_seconds.clone();
        loads.sort_by(f64::total_cmp);
        let load = if loads.is_empty() { 0.0 } else { median(&loads) };
        for measured in &bench.tests {
            let Some(speed) = measured.speed() else { continue };
            rows.push(vec![
                bench.subject.name.clone(),
                ByteCount(bench.subject.file_bytes).to_string(),
                measured.test.name(),
                format!("{:.2}", speed.median),
                format!("{:.2} ± {:.2}", speed.mean, speed.deviation),
                ratio(benches, bench, measured).map_or(String::new(), |ratio| format!("{ratio:.3}")),
                format!("{load:.2}"),
                bench.peak_bytes.map_or("–".to_owned(), |bytes| ByteCount(bytes).to_string()),
            ]);
        }
    }
    rows
}

fn csv(rows: &[Json]) -> String {
    let cells = |row: &Json, cell: &dyn Fn(&str, &Json) -> String| {
        let Json::Object(members) = row else { return String::new() };
        let flat = members.iter().filter(|(_, value)| !matches!(value, Json::Array(_)));
        flat.map(|(name, value)| cell(name, value)).collect::<Vec<_>>().join(",") + "\n"
    };
    let value = |_: &str, value: &Json| match value {
        Json::Null => String::new(),
        value => format!("\"{}\"", cell(value).replace('"', "\"\"")),
    };
    let header = rows.first().map(|row| cells(row, &|name, _| name.to_owned())).unwrap_or_default();
    header + &rows.iter().map(|row| cells(row, &value)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_of_another_name_is_refused_with_those_there_are() {
        assert_eq!("jsonl".parse(), Ok(Format::JsonLines));
        assert!("xml".parse::<Format>().unwrap_err().to_string().contains("md, csv, json and jsonl"));
    }

    #[test]
    fn csv_quotes_all_there_is_and_has_digits_for_yes_and_no() {
        let text = r#"{"b": "x \"y\", z", "a": 1.5, "c": null, "d": [1], "e": true, "f": false}"#;
        let row: Json = serde_json::from_str(text).unwrap();
        assert_eq!(csv(&[row]), "b,a,c,e,f\n\"x \"\"y\"\", z\",\"1.5\",,\"1\",\"0\"\n");
    }
}
