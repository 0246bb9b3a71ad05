//! How much of a model fits onto its devices, as llama.cpp's own tools find out: with contexts that allocate nothing.

use super::backend::{self, Backend, BufferType, text};
use super::context::{ContextOptions, context_params};
use super::error::LlamaError;
use super::placement::{Placement, with_params};
use super::{ERROR_BYTES, ffi, log, message};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What fits.
#[derive(Clone, Debug)]
pub enum Fit {
    /// The model, placed so.
    Fits(Placement),
    /// Nothing that could be changed makes it fit, for the reason that llama.cpp gives: what was asked for stays.
    DoesNotFit(String),
}

impl Placement {
    /// Lays the model at `path` out so that it and a context of `context` fit into what its devices have free, less
    /// `margin` bytes of each (the last counts for those that follow). Changes what was left to llama.cpp: the layers
    /// on devices, their split, and which experts stay in the processor's memory.
    ///
    /// # Errors
    /// When the path or a pattern is none that C can take, or llama.cpp throws.
    pub fn fitted(
        &self,
        _backend: &'static Backend,
        path: &Path,
        context: &ContextOptions,
        margins: &[usize],
    ) -> Result<Fit, LlamaError> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| LlamaError::Nul { what: format!("the path {}", path.display()) })?;
        backend::prepare_devices(self.devices.as_deref());
        let _loading = backend::Loading::begin(path);
        // SAFETY: no preconditions.
        let (n_devices, n_overrides) =
            unsafe { (ffi::llama_max_devices(), ffi::llama_max_tensor_buft_overrides()) };
        let mut split = vec![0.0; n_devices];
        let none =
            ffi::llama_model_tensor_buft_override { pattern: std::ptr::null(), buft: std::ptr::null_mut() };
        let mut overrides = vec![none; n_overrides];
        let last = margins.last().copied().unwrap_or(0);
        let mut margins: Vec<usize> =
            margins.iter().copied().chain(std::iter::repeat(last)).take(n_devices).collect();
        let mut context = context_params(context);
        log::clear();
        let mut error = [0; ERROR_BYTES];
        let (status, layers) = with_params(self, |params| {
            // SAFETY: all that the parameters point to outlives the call, and the buffers are as long as it wants.
            let status = unsafe {
                ffi::moeslice_fit(
                    c_path.as_ptr(),
                    params,
                    &mut context,
                    split.as_mut_ptr(),
                    overrides.as_mut_ptr(),
                    margins.as_mut_ptr(),
                    error.as_mut_ptr(),
                    error.len(),
                )
            };
            (status, params.n_gpu_layers)
        })?;
        match status {
            0 => {}
            ffi::MOESLICE_THREW => return Ok(Fit::DoesNotFit(message(&error))),
            _ => return Ok(Fit::DoesNotFit(log::tail("").to_string())),
        }
        let mut fitted = Placement { gpu_layers: layers, ..self.clone() };
        if split.iter().any(|&share| share != 0.0) {
            fitted.tensor_split = split;
        }
        for entry in overrides.iter().take_while(|entry| !entry.pattern.is_null()) {
            // SAFETY: patterns are strings that llama.cpp keeps, and kinds of memory live until the process ends.
            let (pattern, name) =
                unsafe { (text(entry.pattern), text(ffi::ggml_backend_buft_name(entry.buft))) };
            fitted.overrides.push((pattern, BufferType { raw: entry.buft, name }));
        }
        Ok(Fit::Fits(fitted))
    }
}
