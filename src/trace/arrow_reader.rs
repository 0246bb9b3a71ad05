//! Reads a trace that is an Arrow IPC stream, message by message, as far as it goes.
//!
//! The framing is read here and not by the library, so that every length is checked against the bytes of the file before
//! room is made for it, and a stream without an end is told from a malformed one.

use super::writer::{META_KEY, schema};
use super::{Batch, Phase, RouterValues, Row, TraceError, TraceMeta};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrowPrimitiveType, RecordBatch};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::{MessageHeader, reader::read_record_batch, root_as_message};
use arrow_schema::{DataType, Schema, SchemaRef};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Begins every message since version 0.15 of the format.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The metadata of a message, at most.
const MAX_METADATA: u64 = 16 << 20;

/// A trace in the form that [`super::TraceWriter`] writes.
pub(super) struct ArrowReader {
    path: PathBuf,
    file: BufReader<File>,
    left: u64,
    /// Messages so far, the one at hand among them.
    messages: u64,
    rows: u64,
    schema: SchemaRef,
    meta: TraceMeta,
    remark: Option<String>,
    ended: bool,
}

/// A message: its metadata, and what follows them.
struct Message {
    metadata: Vec<u8>,
    body: Buffer,
}

/// What comes next in the stream.
enum Next {
    Message(Message),
    End,
    Torn,
}

impl ArrowReader {
    /// Whether a file that begins so is an Arrow stream.
    pub(super) fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&CONTINUATION)
    }

    /// Reads the header.
    pub(super) fn open(path: &Path, file: File, length: u64) -> Result<ArrowReader, TraceError> {
        let mut reader = ArrowReader {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 16, file),
            left: length,
            messages: 0,
            rows: 0,
            schema: Arc::new(Schema::empty()),
            meta: TraceMeta::new(Vec::new(), 0, RouterValues::None),
            remark: None,
            ended: false,
        };
        let Next::Message(message) = reader.next_message()? else {
            return Err(reader.not_a_trace("it ends within its header"));
        };
        let header =
            root_as_message(&message.metadata).map_err(|error| reader.malformed(error.to_string()))?;
        let schema = header
            .header_as_schema()
            .ok_or_else(|| reader.not_a_trace("an Arrow stream that does not begin with a schema"))?;
        let schema = arrow_ipc::convert::try_fb_to_schema(schema)
            .map_err(|error| reader.malformed(error.to_string()))?;
        let Some(text) = schema.metadata().get(META_KEY) else {
            return Err(
                reader.not_a_trace("an Arrow stream of another kind: its schema does not tell of a trace")
            );
        };
        let meta: TraceMeta = serde_json::from_str(text)
            .map_err(|error| TraceError::Header { path: path.to_owned(), what: error.to_string() })?;
        meta.check(path)?;
        reader.check_columns(&schema, &meta)?;
        (reader.schema, reader.meta) = (Arc::new(schema), meta);
        Ok(reader)
    }

    fn check_columns(&self, found: &Schema, meta: &TraceMeta) -> Result<(), TraceError> {
        let bad = |what: String| TraceError::Header { path: self.path.clone(), what };
        let columns = schema(meta);
        if found.fields().len() != columns.fields().len() {
            return Err(bad(format!(
                "it has {} columns, and not {}",
                found.fields().len(),
                columns.fields().len()
            )));
        }
        for wanted in columns.fields() {
            let name = wanted.name();
            let field = found.field_with_name(name).map_err(|_| bad(format!("it has no column {name:?}")))?;
            let same = match (field.data_type(), wanted.data_type()) {
                (DataType::FixedSizeList(a, n), DataType::FixedSizeList(b, m)) => {
                    n == m && a.data_type() == b.data_type()
                }
                (a, b) => a == b,
            };
            if !same {
                let (is, want) = (field.data_type(), wanted.data_type());
                return Err(bad(format!("its column {name:?} is {is}, and not {want}")));
            }
        }
        Ok(())
    }

    pub(super) fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    pub(super) fn meta_mut(&mut self) -> &mut TraceMeta {
        &mut self.meta
    }

    pub(super) fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Reads the next record batch; false at the end.
    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while !self.ended {
            let message = match self.next_message()? {
                Next::Message(message) => message,
                Next::End => break,
                Next::Torn => {
                    self.remark = Some(format!(
                        "{} ends in the middle, as a recording does that was killed: its first {} tokens are read",
                        self.path.display(),
                        self.rows
                    ));
                    break;
                }
            };
            let records = self.decode(&message)?;
            if records.num_rows() == 0 {
                continue;
            }
            self.take(&records, batch)?;
            batch.check(&self.meta, &self.path, self.rows)?;
            self.rows += batch.rows.len() as u64;
            return Ok(true);
        }
        self.ended = true;
        Ok(false)
    }

    fn decode(&self, message: &Message) -> Result<RecordBatch, TraceError> {
        let header = root_as_message(&message.metadata).map_err(|error| self.malformed(error.to_string()))?;
        if header.header_type() != MessageHeader::RecordBatch {
            return Err(
                self.malformed(format!("{:?} where a batch of tokens is expected", header.header_type()))
            );
        }
        let batch =
            header.header_as_record_batch().ok_or_else(|| self.malformed("it holds no batch".into()))?;
        if batch.compression().is_some() {
            return Err(self.malformed("it is compressed, which a trace is not".into()));
        }
        self.check_places(batch, message.body.len() as u64)?;
        let version = header.version();
        read_record_batch(&message.body, batch, Arc::clone(&self.schema), &HashMap::new(), None, &version)
            .map_err(|error| self.malformed(error.to_string()))
    }

    /// Checks the numbers that the library trusts, and would panic at: the lengths of the columns, and where they lie.
    fn check_places(&self, batch: arrow_ipc::RecordBatch<'_>, body: u64) -> Result<(), TraceError> {
        let bad = || self.malformed("its columns do not fit into it".into());
        let rows = u64::try_from(batch.length()).map_err(|_| bad())?;
        let mut nodes = batch.nodes().into_iter().flatten();
        let mut buffers = batch.buffers().into_iter().flatten();
        let mut node = |expected: u64| {
            let found = nodes.next().filter(|node| u64::try_from(node.length()) == Ok(expected));
            found.filter(|node| node.null_count() == 0).map(|_| ()).ok_or_else(bad)
        };
        let mut buffer = |least: u64| {
            let (offset, length) = buffers
                .next()
                .and_then(|buffer| {
                    Some((u64::try_from(buffer.offset()).ok()?, u64::try_from(buffer.length()).ok()?))
                })
                .ok_or_else(bad)?;
            let end = offset.checked_add(length).filter(|end| *end <= body && length >= least);
            end.map(|_| ()).ok_or_else(bad)
        };
        for field in self.schema.fields() {
            let (values, kind) = match field.data_type() {
                DataType::FixedSizeList(item, width) => {
                    node(rows)?;
                    buffer(0)?;
                    let width = u64::try_from(*width).map_err(|_| bad())?;
                    (rows.checked_mul(width).ok_or_else(bad)?, item.data_type())
                }
                kind => (rows, kind),
            };
            node(values)?;
            buffer(0)?;
            let width = kind.primitive_width().ok_or_else(bad)? as u64;
            buffer(values.checked_mul(width).ok_or_else(bad)?)?;
        }
        Ok(())
    }

    fn take(&self, records: &RecordBatch, batch: &mut Batch) -> Result<(), TraceError> {
        let session = self.column::<UInt32Type>(records, "session")?;
        let turn = self.column::<UInt32Type>(records, "turn")?;
        let phase = self.column::<UInt8Type>(records, "phase")?;
        let ubatch = self.column::<UInt64Type>(records, "ubatch")?;
        let position = self.column::<UInt32Type>(records, "position")?;
        let token = self.column::<Int32Type>(records, "token")?;
        for row in 0..records.num_rows() {
            let phase = match phase[row] {
                0 => Phase::Prefill,
                1 => Phase::Decode,
                other => return Err(self.malformed(format!("phase {other} is neither 0 nor 1"))),
            };
            batch.rows.push(Row {
                session: session[row],
                turn: turn[row],
                phase,
                ubatch: ubatch[row],
                position: position[row],
                token: token[row],
            });
        }
        batch.ids.extend_from_slice(self.list::<UInt16Type>(records, "ids", self.meta.row_ids())?);
        if self.meta.router_values != RouterValues::None {
            let layers = self.meta.layers.len();
            batch.values.extend_from_slice(self.list::<Float32Type>(
                records,
                "values",
                self.meta.row_ids(),
            )?);
            batch.z_min.extend_from_slice(self.list::<Float32Type>(records, "z_min", layers)?);
            batch.z_mean.extend_from_slice(self.list::<Float32Type>(records, "z_mean", layers)?);
            batch.z_std.extend_from_slice(self.list::<Float32Type>(records, "z_std", layers)?);
        }
        Ok(())
    }

    fn column<'r, T: ArrowPrimitiveType>(
        &self,
        records: &'r RecordBatch,
        name: &str,
    ) -> Result<&'r [T::Native], TraceError> {
        let column = records.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
        match column {
            Some(column) if column.null_count() == 0 => Ok(column.values()),
            _ => Err(self.malformed(format!("its column {name:?} has gaps"))),
        }
    }

    fn list<'r, T: ArrowPrimitiveType>(
        &self,
        records: &'r RecordBatch,
        name: &str,
        width: usize,
    ) -> Result<&'r [T::Native], TraceError> {
        let gaps = || self.malformed(format!("its column {name:?} has gaps"));
        let list = records
            .column_by_name(name)
            .and_then(|column| column.as_fixed_size_list_opt())
            .ok_or_else(gaps)?;
        let values = list.values().as_primitive_opt::<T>().ok_or_else(gaps)?;
        if list.null_count() > 0 || values.null_count() > 0 {
            return Err(gaps());
        }
        let begin = list.value_offset_at(0);
        values.values().get(begin..begin + records.num_rows() * width).ok_or_else(gaps)
    }

    fn next_message(&mut self) -> Result<Next, TraceError> {
        self.messages += 1;
        let mut frame = [0; 8];
        if self.left == 0 {
            // A stream may end without a word; ours do not, so this one was cut between two batches.
            return Ok(Next::Torn);
        }
        if !self.fill(&mut frame)? {
            return Ok(Next::Torn);
        }
        let [c0, c1, c2, c3, length @ ..] = frame;
        if [c0, c1, c2, c3] != CONTINUATION {
            return Err(self.malformed("it does not begin as a message does".into()));
        }
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(Next::End);
        }
        if length > MAX_METADATA {
            return Err(self.malformed(format!("its metadata take {length} bytes")));
        }
        if length > self.left {
            return Ok(Next::Torn);
        }
        // At most MAX_METADATA.
        let mut metadata = vec![0; length as usize];
        self.fill(&mut metadata)?;
        let body = root_as_message(&metadata).map(|message| message.bodyLength());
        let body = body.map_err(|error| self.malformed(error.to_string()))?;
        let body = u64::try_from(body).map_err(|_| self.malformed(format!("its body takes {body} bytes")))?;
        if body > self.left {
            return Ok(Next::Torn);
        }
        let size =
            usize::try_from(body).map_err(|_| self.malformed(format!("its body takes {body} bytes")))?;
        let mut bytes = MutableBuffer::from_len_zeroed(size);
        self.fill(bytes.as_slice_mut())?;
        Ok(Next::Message(Message { metadata, body: bytes.into() }))
    }

    /// Reads all of `bytes`; false when the file had fewer from the beginning.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, TraceError> {
        if bytes.len() as u64 > self.left {
            return Ok(false);
        }
        self.left -= bytes.len() as u64;
        match self.file.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(TraceError::Shrank { path: self.path.clone() })
            }
            Err(error) => Err(TraceError::Read { path: self.path.clone(), error }),
        }
    }

    fn malformed(&self, what: String) -> TraceError {
        TraceError::Message { path: self.path.clone(), message: self.messages.saturating_sub(1), what }
    }

    fn not_a_trace(&self, what: &str) -> TraceError {
        TraceError::NotATrace { path: self.path.clone(), what: what.to_owned() }
    }
}
