//! What a context and its model hold of each kind of memory.

use super::backend::Device;
use super::context::Context;
use super::error::LlamaError;
use super::ffi;

/// Bytes of one kind of memory that a context and its model hold, or, where the model is only planned
/// ([`Placement::planned`](super::Placement::planned)), would hold. The buffer of outputs is not among them.
#[derive(Clone, Debug)]
pub struct HeldMemory {
    /// The GPU whose memory it is; `None` for the processor's.
    pub device: Option<Device>,
    /// Whether the processor reaches it as any other memory: weights there can be mapped from the file.
    pub host: bool,
    /// Weights.
    pub weights: u64,
    /// Keys and values, and the states of sequences.
    pub keys_values: u64,
    /// Room to compute in.
    pub compute: u64,
}

impl Context<'_> {
    /// What the context and its model hold, by kinds of memory.
    ///
    /// # Errors
    /// When llama.cpp cannot plan its graph.
    pub fn memory(&self) -> Result<Vec<HeldMemory>, LlamaError> {
        let mut rows = Vec::with_capacity(16);
        loop {
            let mut count = 0;
            self.guarded(0, |context, error, size| {
                // SAFETY: the context is alive, and the rows have room for as many as is said.
                count = unsafe {
                    ffi::moeslice_context_memory(context, rows.as_mut_ptr(), rows.capacity(), error, size)
                };
                count
            })?;
            let count = usize::try_from(count).unwrap_or(0);
            if count <= rows.capacity() {
                // SAFETY: so many rows were written.
                unsafe { rows.set_len(count) };
                return Ok(rows.iter().map(read).collect());
            }
            rows.reserve(count);
        }
    }
}

fn read(row: &ffi::moeslice_memory) -> HeldMemory {
    HeldMemory {
        // SAFETY: a device that is not NULL is a registered one.
        device: (!row.device.is_null()).then(|| unsafe { Device::read(row.device) }),
        host: row.host,
        weights: row.weights as u64,
        keys_values: row.context as u64,
        compute: row.compute as u64,
    }
}
