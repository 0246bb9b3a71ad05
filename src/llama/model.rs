//! A loaded model.

use super::backend::{Backend, Device};
use super::error::LlamaError;
use super::vocab::Vocab;
use super::{ERROR_BYTES, ffi, log, message};
use crate::progress::{Interrupt, Progress};
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Where a model goes when it is loaded.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The devices to use besides the processor: `None` for all that llama.cpp would take, an empty list for none.
    pub devices: Option<Vec<Device>>,
    /// Layers to put on those devices; negative: all.
    pub gpu_layers: i32,
    /// Patterns of tensor names and the device whose memory the matching tensors go to.
    pub overrides: Vec<(String, Device)>,
    /// Whether the weights are mapped from the file rather than read.
    pub mmap: Option<bool>,
    /// Whether blocks of multi-token prediction (MTP) are loaded.
    pub mtp: bool,
}

/// A model that llama.cpp has loaded.
pub struct Model {
    pub(super) raw: NonNull<ffi::llama_model>,
}

// SAFETY: llama.cpp does not tie a model to the thread that loaded it.
unsafe impl Send for Model {}

impl Model {
    /// Loads the model in `path` (the first shard of several brings the others). `progress` is told how many hundredths
    /// are loaded.
    ///
    /// # Errors
    /// When llama.cpp refuses the file, for the reason that it logged, or `interrupt` comes.
    pub fn load(
        _backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        progress: &mut dyn Progress,
        interrupt: Interrupt,
    ) -> Result<Model, LlamaError> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LlamaError::Nul { what: format!("the path {}", path.display()) })?;
        let mut paths = [c_path.as_ptr()];
        let mut tracked = Tracked { progress, interrupt, cancelled: false };
        let raw = with_params(placement, |params| {
            params.progress_callback = Some(on_progress);
            params.progress_callback_user_data = (&raw mut tracked).cast();
            log::clear();
            let mut error = [0; ERROR_BYTES];
            // SAFETY: all that the parameters and arguments point to outlives the call.
            let raw = unsafe {
                ffi::moeslice_model_load(
                    paths.as_mut_ptr(),
                    paths.len(),
                    *params,
                    error.as_mut_ptr(),
                    error.len(),
                )
            };
            (raw, message(&error))
        })?;
        match (NonNull::new(raw.0), tracked.cancelled) {
            (_, true) => Err(LlamaError::Interrupted),
            (Some(raw), _) => Ok(Model { raw }),
            (None, _) => Err(LlamaError::Load { path: path.to_owned(), tail: log::tail(&raw.1) }),
        }
    }

    /// The vocabulary.
    pub fn vocab(&self) -> Vocab<'_> {
        // SAFETY: the model is alive, and the vocabulary is part of it.
        Vocab { raw: unsafe { ffi::llama_model_get_vocab(self.raw.as_ptr()) }, _model: PhantomData }
    }

    /// Whether the model is a diffusion model, which attends to later tokens too.
    pub fn is_diffusion(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_is_diffusion(self.raw.as_ptr()) }
    }

    /// Numbers in an embedding that the model puts out.
    pub(super) fn n_embd_out(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_n_embd_out(self.raw.as_ptr()) }.max(0) as usize
    }

    /// Tokens that the model was trained to look back on.
    pub fn n_ctx_train(&self) -> u32 {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_n_ctx_train(self.raw.as_ptr()) }.max(0) as u32
    }

    /// Writes the model as a GGUF file, as llama.cpp holds it.
    ///
    /// # Errors
    /// When llama.cpp cannot write models of this architecture, or the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), LlamaError> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LlamaError::Nul { what: format!("the path {}", path.display()) })?;
        log::clear();
        let mut error = [0; ERROR_BYTES];
        // SAFETY: model and path are alive.
        let status = unsafe {
            ffi::moeslice_model_save(self.raw.as_ptr(), c_path.as_ptr(), error.as_mut_ptr(), error.len())
        };
        if status == 0 {
            return Ok(());
        }
        Err(LlamaError::Save { path: PathBuf::from(path), tail: log::tail(&message(&error)) })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: contexts borrow the model, so none is left; the pointer is freed once.
        unsafe { ffi::llama_model_free(self.raw.as_ptr()) }
    }
}

/// Calls `call` with llama.cpp's parameters for `placement`; what they point to lives as long as the call.
pub(super) fn with_params<R>(
    placement: &Placement,
    call: impl FnOnce(&mut ffi::llama_model_params) -> R,
) -> Result<R, LlamaError> {
    // SAFETY: returns a plain struct.
    let mut params = unsafe { ffi::llama_model_default_params() };
    let mut devices: Vec<ffi::ggml_backend_dev_t> =
        placement.devices.iter().flatten().map(|device| device.raw).chain([std::ptr::null_mut()]).collect();
    if placement.devices.is_some() {
        params.devices = devices.as_mut_ptr();
    }
    params.n_gpu_layers = placement.gpu_layers;
    params.load_mtp = placement.mtp;
    match placement.mmap {
        Some(true) => params.load_mode = ffi::LLAMA_LOAD_MODE_MMAP,
        Some(false) => params.load_mode = ffi::LLAMA_LOAD_MODE_NONE,
        None => {}
    }
    let patterns = placement
        .overrides
        .iter()
        .map(|(pattern, _)| {
            CString::new(pattern.as_str())
                .map_err(|_| LlamaError::Nul { what: format!("the pattern {pattern:?}") })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut overrides: Vec<ffi::llama_model_tensor_buft_override> = patterns
        .iter()
        .zip(&placement.overrides)
        .map(|(pattern, (_, device))| ffi::llama_model_tensor_buft_override {
            pattern: pattern.as_ptr(),
            // SAFETY: devices live until the process ends.
            buft: unsafe { ffi::ggml_backend_dev_buffer_type(device.raw) },
        })
        .collect();
    overrides.push(ffi::llama_model_tensor_buft_override {
        pattern: std::ptr::null(),
        buft: std::ptr::null_mut(),
    });
    if !placement.overrides.is_empty() {
        params.tensor_buft_overrides = overrides.as_ptr();
    }
    Ok(call(&mut params))
}

struct Tracked<'a, 'p> {
    progress: &'a mut (dyn Progress + 'p),
    interrupt: Interrupt,
    cancelled: bool,
}

unsafe extern "C" fn on_progress(share: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `load` hands over a `Tracked` that outlives the loading, and llama.cpp calls from one thread at a time.
    let tracked = unsafe { &mut *user_data.cast::<Tracked<'_, '_>>() };
    let go_on = catch_unwind(AssertUnwindSafe(|| {
        tracked.progress.update((share * 100.0) as u64, 100);
        !tracked.interrupt.is_set()
    }))
    .unwrap_or(false);
    tracked.cancelled |= !go_on;
    go_on
}
