//! A loaded model.

use super::backend::{self, Backend, Device};
use super::error::{Allocation, LlamaError};
use super::placement::{Placement, with_params};
use super::vocab::Vocab;
use super::{ERROR_BYTES, ffi, log, message};
use crate::progress::{Interrupt, Progress};
use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// A model that llama.cpp has loaded.
pub struct Model {
    pub(super) raw: NonNull<ffi::llama_model>,
    /// Set when llama.cpp has thrown an exception in a context of the model.
    device_lost: AtomicBool,
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
        let mut tracked = Tracked { progress, interrupt, cancelled: false, panic: None };
        backend::prepare_devices(placement.devices.as_deref());
        let _loading = backend::Loading::begin(path);
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
        let model = NonNull::new(raw.0).map(Model::new);
        if let Some(panic) = tracked.panic {
            drop(model);
            resume_unwind(panic);
        }
        match (model, tracked.cancelled) {
            (_, true) => Err(LlamaError::Interrupted),
            (Some(model), false) => Ok(model),
            (None, false) => {
                let (path, tail) = (path.to_owned(), log::tail(&raw.1));
                Err(LlamaError::out_of_memory(Allocation::Model { path: path.clone() }, &tail)
                    .unwrap_or(LlamaError::Load { path, tail }))
            }
        }
    }

    pub(super) fn new(raw: NonNull<ffi::llama_model>) -> Model {
        Model { raw, device_lost: AtomicBool::new(false) }
    }

    /// Notes that llama.cpp has thrown an exception: what it holds on its devices is not touched again.
    pub(super) fn lose_device(&self) {
        self.device_lost.store(true, Ordering::Relaxed);
    }

    /// Whether llama.cpp has thrown an exception.
    pub(super) fn has_lost_device(&self) -> bool {
        self.device_lost.load(Ordering::Relaxed)
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

    /// Whether each token attends only to those before it, as `{arch}.attention.causal` or the architecture says.
    pub fn is_causal(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { ffi::moeslice_model_is_causal(self.raw.as_ptr()) }
    }

    /// Whether some layers keep a state of each sequence, which is computed token by token.
    pub fn is_recurrent(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe {
            ffi::llama_model_is_recurrent(self.raw.as_ptr()) || ffi::llama_model_is_hybrid(self.raw.as_ptr())
        }
    }

    /// Whether an indexer chooses which stored keys and values a token attends to.
    pub fn has_indexer(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { ffi::moeslice_model_has_indexer(self.raw.as_ptr()) }
    }

    /// Whether a GPU holds layers of the model, or computes with weights that lie in the processor's memory.
    pub fn uses_gpu(&self) -> bool {
        self.devices().iter().any(Device::is_gpu)
    }

    /// The devices besides the processor that hold layers of the model.
    pub fn devices(&self) -> Vec<Device> {
        (0..)
            .map_while(|index| {
                // SAFETY: the model is alive; NULL ends the list.
                let raw = unsafe { ffi::moeslice_model_device(self.raw.as_ptr(), index) };
                // SAFETY: other results are registered devices.
                (!raw.is_null()).then(|| unsafe { Device::read(raw) })
            })
            .collect()
    }

    /// Tokens of a sequence beyond which llama.cpp computes positions in another way.
    pub(crate) fn n_ctx_original(&self) -> u32 {
        // SAFETY: the model is alive.
        let tokens = unsafe { ffi::moeslice_model_n_ctx_original(self.raw.as_ptr()) };
        // A model of which the vocabulary alone was loaded does not know.
        if tokens == 0 { u32::MAX } else { tokens }
    }

    /// Whether its weights are mapped from the file where a placement leaves that open.
    pub fn maps(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { ffi::moeslice_model_maps(self.raw.as_ptr()) }
    }

    /// Numbers in an embedding that the model puts out.
    pub fn n_embd_out(&self) -> usize {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_n_embd_out(self.raw.as_ptr()) }.max(0) as usize
    }

    /// llama.cpp's words for it: architecture, size and type of the weights.
    pub fn description(&self) -> String {
        let mut buffer = [0; 128];
        // SAFETY: the model is alive; the buffer is writable for its length, and llama.cpp ends the text with NUL.
        unsafe { ffi::llama_model_desc(self.raw.as_ptr(), buffer.as_mut_ptr(), buffer.len()) };
        message(&buffer)
    }

    /// Bytes of all tensors.
    pub fn size(&self) -> u64 {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_size(self.raw.as_ptr()) }
    }

    /// Elements of all tensors.
    pub fn n_params(&self) -> u64 {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_n_params(self.raw.as_ptr()) }
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
        // What lies on a lost device cannot be freed, and a context of the model is still there.
        if !self.has_lost_device() {
            // SAFETY: contexts borrow the model, so none is left; the pointer is freed once.
            unsafe { ffi::llama_model_free(self.raw.as_ptr()) }
        }
    }
}

struct Tracked<'a, 'p> {
    progress: &'a mut (dyn Progress + 'p),
    interrupt: Interrupt,
    cancelled: bool,
    /// A panic of the progress, which goes on once llama.cpp has returned.
    panic: Option<Box<dyn std::any::Any + Send>>,
}

unsafe extern "C" fn on_progress(share: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `load` hands over a `Tracked` that outlives the loading, and llama.cpp calls from one thread at a time.
    let tracked = unsafe { &mut *user_data.cast::<Tracked<'_, '_>>() };
    let told = catch_unwind(AssertUnwindSafe(|| tracked.progress.update((share * 100.0) as u64, 100)));
    if let Err(panic) = told {
        tracked.panic.get_or_insert(panic);
        return false;
    }
    tracked.cancelled |= tracked.interrupt.is_set();
    !tracked.cancelled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::Placement;
    use crate::progress::OnUpdate;

    #[test]
    fn a_panic_of_the_progress_goes_on_and_is_no_interrupt() {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/moeslice-demo-Q8_0.gguf");
        let placement = Placement { devices: Some(Vec::new()), ..Placement::default() };
        let backend = Backend::start().unwrap();
        let mut progress = OnUpdate(|_, _| panic!("no room for a bar"));
        let loaded = catch_unwind(AssertUnwindSafe(|| {
            Model::load(backend, &demo, &placement, &mut progress, Interrupt::NEVER).map(|_| ())
        }));
        let panic = loaded.expect_err("the panic comes through");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"no room for a bar"));
    }
}
