//! Models made from metadata alone: llama.cpp names the tensors, the caller gives their data.

use super::backend::Backend;
use super::error::LlamaError;
use super::model::Model;
use super::node::name_of;
use super::placement::{Placement, with_params};
use super::{ERROR_BYTES, ffi, log, message};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// A tensor that llama.cpp has made for a model and that waits for its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlankTensor {
    /// Its name, such as `blk.0.ffn_up_exps.weight`.
    pub name: String,
    /// Elements in each dimension, innermost first; trailing dimensions of size 1 are left out.
    pub dims: Vec<u64>,
    /// The id of its element type, as GGUF files have it.
    pub type_id: u32,
    /// Bytes of its data.
    pub bytes: usize,
}

/// Gives the data of a tensor; as many bytes as the tensor has.
pub type Fill<'a> = &'a mut dyn FnMut(&BlankTensor) -> Vec<u8>;

impl Model {
    /// Makes the model that the GGUF header in `header` describes. Which tensors it has, and their shapes, follows from
    /// the metadata and llama.cpp's code; they are F32 unless the header lists a tensor of that name with another
    /// type. `fill` gives the data of each, in an order that is llama.cpp's own.
    ///
    /// llama.cpp ends the process on metadata that contradict themselves: they must come from the program, not from
    /// a user.
    ///
    /// # Errors
    /// When llama.cpp cannot make the model, or `fill` gives another number of bytes than a tensor has.
    pub fn from_metadata(
        _backend: &'static Backend,
        header: &[u8],
        placement: &Placement,
        fill: Fill<'_>,
    ) -> Result<Model, LlamaError> {
        log::clear();
        let params = ffi::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
        // SAFETY: the buffer is valid for its length and is not kept.
        let metadata = unsafe { ffi::gguf_init_from_buffer(header.as_ptr().cast(), header.len(), params) };
        let metadata = NonNull::new(metadata).map(Metadata).ok_or_else(|| made_nothing(""))?;
        let mut state = Filling { fill, fault: None, panic: None };
        let (raw, thrown) = with_params(placement, |params| {
            // Without it, llama.cpp asserts on the blocks of multi-token prediction instead of leaving them out.
            params.load_mtp = true;
            let mut error = [0; ERROR_BYTES];
            // SAFETY: metadata, state and all that the parameters point to outlive the call.
            let raw = unsafe {
                ffi::moeslice_model_from_metadata(
                    metadata.0.as_ptr(),
                    Some(on_tensor),
                    (&raw mut state).cast(),
                    *params,
                    error.as_mut_ptr(),
                    error.len(),
                )
            };
            (raw, message(&error))
        })?;
        let model = NonNull::new(raw).map(Model::new);
        if let Some(panic) = state.panic {
            resume_unwind(panic);
        }
        match (model, state.fault) {
            (_, Some(fault)) => Err(made_nothing(&fault)),
            (Some(model), None) => Ok(model),
            (None, None) => Err(made_nothing(&thrown)),
        }
    }
}

fn made_nothing(why: &str) -> LlamaError {
    LlamaError::Synthesize { tail: log::tail(why) }
}

/// Metadata that llama.cpp has parsed.
struct Metadata(NonNull<ffi::gguf_context>);

impl Drop for Metadata {
    fn drop(&mut self) {
        // SAFETY: freed once; models made from it keep nothing of it.
        unsafe { ffi::gguf_free(self.0.as_ptr()) }
    }
}

struct Filling<'a> {
    fill: Fill<'a>,
    fault: Option<String>,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

unsafe extern "C" fn on_tensor(raw: *mut ffi::ggml_tensor, user_data: *mut c_void) {
    // SAFETY: `from_metadata` hands over a `Filling` that outlives the loading; calls come from its thread.
    let state = unsafe { &mut *user_data.cast::<Filling<'_>>() };
    if state.fault.is_some() || state.panic.is_some() {
        return;
    }
    // SAFETY: llama.cpp hands over a live tensor that it has allocated.
    let tensor = unsafe { &*raw };
    // SAFETY: as above.
    let bytes = unsafe { ffi::ggml_nbytes(raw) };
    let mut dims: Vec<u64> = tensor.ne.iter().map(|&n| n.max(0) as u64).collect();
    while dims.len() > 1 && dims.last() == Some(&1) {
        dims.pop();
    }
    let blank = BlankTensor { name: name_of(tensor).to_owned(), dims, type_id: tensor.type_, bytes };
    match catch_unwind(AssertUnwindSafe(|| (state.fill)(&blank))) {
        Ok(data) if data.len() == bytes => {
            let mut error = [0; ERROR_BYTES];
            // SAFETY: the tensor is allocated and has as many bytes as the data.
            let status = unsafe {
                ffi::moeslice_tensor_set(raw, data.as_ptr().cast(), 0, bytes, error.as_mut_ptr(), error.len())
            };
            if status == ffi::MOESLICE_THREW {
                state.fault = Some(message(&error));
            }
        }
        Ok(data) => state.fault = Some(format!("{} bytes were given for {blank:?}", data.len())),
        Err(panic) => state.panic = Some(panic),
    }
}
