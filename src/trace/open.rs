//! Opens a trace of any form.

use super::arrow_reader::ArrowReader;
use super::csv::CsvLines;
use super::jsonl::JsonLines;
use super::tokens::{BYTE_ORDER_MARK, TextReader};
use super::{Batch, TraceError, TraceMeta};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Gives the tokens of a trace in order.
pub trait TraceReader: Send {
    /// What is known of the whole.
    fn meta(&self) -> &TraceMeta;

    /// Replaces the tokens of `batch` by the next ones; false at the end.
    ///
    /// # Errors
    /// When the trace cannot be read any further.
    fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError>;

    /// What is to be said of the trace once it is read, such as that it has no end.
    fn remark(&self) -> Option<&str> {
        None
    }
}

/// A trace in a file.
pub struct OpenTrace(Form);

enum Form {
    Arrow(ArrowReader),
    Jsonl(TextReader<JsonLines>),
    Csv(TextReader<CsvLines>),
}

/// Opens the trace at `path`: an Arrow stream, JSONL or CSV, told by its first bytes.
///
/// # Errors
/// When it is none of them, or its header is not usable.
pub fn open(path: &Path) -> Result<OpenTrace, TraceError> {
    let cannot = |error| TraceError::Read { path: path.to_owned(), error };
    let not_a_trace = |what: &str| TraceError::NotATrace { path: path.to_owned(), what: what.to_owned() };
    // Asked before it is opened: to open a pipe that nobody writes to would wait without an end.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(not_a_trace("it is not a regular file"));
    }
    let mut file = File::open(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    let mut begin = Vec::new();
    file.by_ref().take(6).read_to_end(&mut begin).map_err(cannot)?;
    file.seek(SeekFrom::Start(0)).map_err(cannot)?;
    let text = begin.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(&begin);
    Ok(OpenTrace(match text {
        [] => return Err(not_a_trace("it is empty")),
        b"ARROW1" => return Err(not_a_trace("an Arrow file, and a trace is an Arrow stream")),
        bytes if ArrowReader::begins(bytes) => Form::Arrow(ArrowReader::open(path, file, found.len())?),
        [b'{', ..] => Form::Jsonl(TextReader::open(path)?),
        [b'a'..=b'z' | b'"', ..] => Form::Csv(TextReader::open(path)?),
        _ => return Err(not_a_trace("it begins neither as an Arrow stream, nor as JSONL, nor as CSV")),
    }))
}

impl OpenTrace {
    /// What is known of the whole, to be completed from elsewhere.
    pub fn meta_mut(&mut self) -> &mut TraceMeta {
        match &mut self.0 {
            Form::Arrow(reader) => reader.meta_mut(),
            Form::Jsonl(reader) => reader.meta_mut(),
            Form::Csv(reader) => reader.meta_mut(),
        }
    }
}

impl TraceReader for OpenTrace {
    fn meta(&self) -> &TraceMeta {
        match &self.0 {
            Form::Arrow(reader) => reader.meta(),
            Form::Jsonl(reader) => reader.meta(),
            Form::Csv(reader) => reader.meta(),
        }
    }

    fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        match &mut self.0 {
            Form::Arrow(reader) => reader.read(batch),
            Form::Jsonl(reader) => reader.read(batch),
            Form::Csv(reader) => reader.read(batch),
        }
    }

    fn remark(&self) -> Option<&str> {
        match &self.0 {
            Form::Arrow(reader) => reader.remark(),
            Form::Jsonl(_) | Form::Csv(_) => None,
        }
    }
}
