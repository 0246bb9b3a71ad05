//! Writes a trace as an Arrow IPC stream.

use super::{Batch, Phase, RouterValues, TraceError, TraceMeta};
use crate::sys::PartFile;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int32Array, RecordBatch, UInt8Array, UInt16Array,
};
use arrow_array::{UInt32Array, UInt64Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The key of the schema's metadata that holds the trace's header.
pub(super) const META_KEY: &str = "moeslice.trace";
/// Bytes that are gathered before a record batch is written: what a kill can cost.
const BATCH_BYTES: usize = 1 << 18;
/// Tokens, for the same reason: those of a small model take few bytes.
const BATCH_TOKENS: usize = 512;

/// A trace that is being written: `T.arrow.part` until [`finish`](TraceWriter::finish), one record batch every 512 tokens or 256 KiB.
pub struct TraceWriter {
    meta: TraceMeta,
    schema: SchemaRef,
    stream: StreamWriter<PartStream>,
    pending: Batch,
    tokens: u64,
}

/// A part file as a stream, which keeps the error that the file gave.
struct PartStream(PartFile);

impl Write for PartStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The columns of a trace.
pub(super) fn schema(meta: &TraceMeta) -> Schema {
    let plain = |name: &str, kind: DataType| Field::new(name, kind, false);
    let list = |name: &str, kind: DataType, width: usize| {
        let width = i32::try_from(width).unwrap_or(i32::MAX);
        Field::new_fixed_size_list(name, Field::new("item", kind, false), width, false)
    };
    let mut fields = vec![
        plain("session", DataType::UInt32),
        plain("turn", DataType::UInt32),
        plain("phase", DataType::UInt8),
        plain("ubatch", DataType::UInt64),
        plain("position", DataType::UInt32),
        plain("token", DataType::Int32),
        list("ids", DataType::UInt16, meta.row_ids()),
    ];
    if meta.router_values != RouterValues::None {
        fields.push(list("values", DataType::Float32, meta.row_ids()));
        for name in ["z_min", "z_mean", "z_std"] {
            fields.push(list(name, DataType::Float32, meta.layers.len()));
        }
    }
    let header = serde_json::to_string(meta).expect("the header is JSON");
    Schema::new(fields).with_metadata(HashMap::from([(META_KEY.to_owned(), header)]))
}

impl TraceWriter {
    /// Starts a trace that will be `path`.
    ///
    /// # Errors
    /// When the file cannot be made, or the header is not possible.
    pub fn create(path: &Path, replace: bool, meta: TraceMeta) -> Result<TraceWriter, TraceError> {
        meta.check(path)?;
        let part = PartFile::create(path, replace)?;
        let shown = part.part().to_owned();
        let schema = Arc::new(schema(&meta));
        let stream = StreamWriter::try_new(PartStream(part), &schema)
            .map_err(|error| crate::sys::FileError::Write { path: shown, error: io_error(error) })?;
        Ok(TraceWriter { meta, schema, stream, pending: Batch::default(), tokens: 0 })
    }

    /// The header.
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// Tokens so far.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Moves the tokens of `batch` into the trace.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn append(&mut self, batch: &mut Batch) -> Result<(), TraceError> {
        self.tokens += batch.rows.len() as u64;
        self.pending.append(batch);
        if self.pending.bytes() >= BATCH_BYTES || self.pending.rows.len() >= BATCH_TOKENS {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes what is gathered as a record batch.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.pending.rows.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.pending);
        let batch = record_batch(&self.schema, &self.meta, batch);
        let written = batch.and_then(|batch| self.stream.write(&batch));
        written.map_err(|error| self.stream.get_ref().0.write_error(io_error(error)).into())
    }

    /// Writes the rest, and gives the file its name.
    ///
    /// # Errors
    /// When the disk does not take it, or the name is taken by now.
    pub fn finish(mut self) -> Result<PathBuf, TraceError> {
        self.flush()?;
        self.stream.finish().map_err(|error| self.stream.get_ref().0.write_error(io_error(error)))?;
        let path = self.stream.get_ref().0.part().to_owned();
        let PartStream(part) = self
            .stream
            .into_inner()
            .map_err(|error| crate::sys::FileError::Write { path, error: io_error(error) })?;
        Ok(part.commit()?)
    }
}

fn record_batch(schema: &SchemaRef, meta: &TraceMeta, batch: Batch) -> Result<RecordBatch, ArrowError> {
    let rows = &batch.rows;
    let list = |values: ArrayRef, width: usize| -> Result<ArrayRef, ArrowError> {
        let item = Arc::new(Field::new("item", values.data_type().clone(), false));
        let width =
            i32::try_from(width).map_err(|_| ArrowError::InvalidArgumentError("a row too wide".into()))?;
        Ok(Arc::new(FixedSizeListArray::try_new(item, width, values, None)?))
    };
    let phase = |phase: Phase| match phase {
        Phase::Prefill => 0_u8,
        Phase::Decode => 1,
    };
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.session).collect::<UInt32Array>()),
        Arc::new(rows.iter().map(|row| row.turn).collect::<UInt32Array>()),
        Arc::new(rows.iter().map(|row| phase(row.phase)).collect::<UInt8Array>()),
        Arc::new(rows.iter().map(|row| row.ubatch).collect::<UInt64Array>()),
        Arc::new(rows.iter().map(|row| row.position).collect::<UInt32Array>()),
        Arc::new(rows.iter().map(|row| row.token).collect::<Int32Array>()),
        list(Arc::new(UInt16Array::from(batch.ids)), meta.row_ids())?,
    ];
    if meta.router_values != RouterValues::None {
        columns.push(list(Arc::new(Float32Array::from(batch.values)), meta.row_ids())?);
        for values in [batch.z_min, batch.z_mean, batch.z_std] {
            columns.push(list(Arc::new(Float32Array::from(values)), meta.layers.len())?);
        }
    }
    RecordBatch::try_new(Arc::clone(schema), columns)
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        error => io::Error::other(error.to_string()),
    }
}
