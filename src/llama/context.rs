//! A context: the state in which batches of a model are computed.

use super::batch::Batch;
use super::error::{Allocation, LlamaError, ObserveError};
use super::model::Model;
use super::node::Node;
use super::observer::{Observer, Watch, on_node};
use super::settings::{ContextSettings, FlashAttention};
use super::vocab::Token;
use super::{ERROR_BYTES, ffi, log, message};
use crate::progress::Interrupt;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sequences that a context can hold at once, at most.
pub fn max_sequences() -> u32 {
    // SAFETY: no preconditions.
    u32::try_from(unsafe { ffi::llama_max_parallel_sequences() }).unwrap_or(u32::MAX)
}

/// What a pass leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassOutputs {
    /// Logits of every token.
    Logits,
    /// Nothing: the graph ends before the LM head, and no buffer for the logits of a batch is allocated (a row a sequence is,
    /// when the context is made), while every token still runs through the last layer. Reached by asking for pooled embeddings (`llm_graph_context::build_logits` and
    /// `llama_context::output_reserve` in llama.cpp).
    None,
}

/// Which part of a model a context runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelPart {
    /// All layers but those of multi-token prediction.
    #[default]
    Trunk,
    /// The same, and the state of every token is kept, from which a block of multi-token prediction goes on.
    TrunkWithStates,
    /// The first block of multi-token prediction (MTP).
    Mtp,
}

/// The sizes and settings of a context.
#[derive(Clone, Debug)]
pub struct ContextOptions {
    /// Tokens that can be looked back on: of each sequence, or of all together when `kv_unified` is set.
    pub n_ctx: u32,
    /// Sequences held at once.
    pub n_seq: u32,
    /// Tokens of a batch, at most.
    pub n_batch: u32,
    /// Tokens computed at once, at most.
    pub n_ubatch: u32,
    /// Whether the sequences share one store of keys and values, so that tokens of several are computed at once.
    pub kv_unified: bool,
    /// What a pass leaves behind.
    pub outputs: PassOutputs,
    /// Which part of the model runs.
    pub part: ModelPart,
    /// The rest.
    pub settings: ContextSettings,
}

/// llama.cpp's parameters for `options`, without what watches the context.
pub(super) fn context_params(options: &ContextOptions) -> ffi::llama_context_params {
    let settings = &options.settings;
    let n_seq = options.n_seq.max(1);
    // SAFETY: returns a plain struct.
    let mut params = unsafe { ffi::llama_context_default_params() };
    params.n_ctx = if options.kv_unified { options.n_ctx } else { options.n_ctx.saturating_mul(n_seq) };
    params.n_seq_max = n_seq;
    params.n_batch = options.n_batch;
    params.n_ubatch = options.n_ubatch.min(options.n_batch);
    params.kv_unified = options.kv_unified;
    params.n_threads = settings.threads as i32;
    params.n_threads_batch = settings.threads_batch as i32;
    params.no_perf = true;
    params.flash_attn_type = match settings.flash_attention {
        FlashAttention::Auto => ffi::LLAMA_FLASH_ATTN_TYPE_AUTO,
        FlashAttention::On => ffi::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        FlashAttention::Off => ffi::LLAMA_FLASH_ATTN_TYPE_DISABLED,
    };
    params.type_k = settings.cache_k.0;
    params.type_v = settings.cache_v.0;
    params.offload_kqv = settings.kv_offload;
    params.op_offload = settings.op_offload;
    params.moe_cache_size = settings.moe_cache_bytes;
    if options.part == ModelPart::Mtp {
        params.ctx_type = ffi::LLAMA_CONTEXT_TYPE_MTP;
    }
    if options.outputs == PassOutputs::None {
        params.embeddings = true;
        params.pooling_type = ffi::LLAMA_POOLING_TYPE_LAST;
    }
    params
}

/// A context of a model.
///
/// When llama.cpp has thrown an exception in it, as it does when a device is lost, the context is not freed: its
/// destructor would wait for the device, and throw where nothing can be caught.
pub struct Context<'m> {
    pub(super) raw: NonNull<ffi::llama_context>,
    /// Behind a cell, since llama.cpp keeps the pointer for as long as the context lives.
    watch: Box<UnsafeCell<Watch>>,
    threads: ThreadPool,
    n_batch: usize,
    n_vocab: usize,
    n_embd: usize,
    interrupt: Interrupt,
    model: &'m Model,
}

impl<'m> Context<'m> {
    /// Makes a context.
    ///
    /// # Errors
    /// When llama.cpp cannot, mostly for want of memory.
    pub fn new(model: &'m Model, options: &ContextOptions) -> Result<Context<'m>, LlamaError> {
        let settings = &options.settings;
        let watch = Box::new(UnsafeCell::new(Watch::default()));
        let mut params = context_params(options);
        let n_ctx = params.n_ctx;
        if settings.observed {
            params.cb_eval = Some(on_node);
            params.cb_eval_user_data = watch.get().cast();
        }
        if let Some(flag) = settings.interrupt.flag() {
            params.abort_callback = Some(on_abort_asked);
            params.abort_callback_data = (flag as *const AtomicBool).cast_mut().cast();
        }
        log::clear();
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the model is alive; the watch outlives the context, which is freed first.
        let raw =
            unsafe { ffi::moeslice_context_new(model.raw.as_ptr(), params, error.as_mut_ptr(), error.len()) };
        let Some(raw) = NonNull::new(raw) else {
            let tail = log::tail(&message(&error));
            return Err(LlamaError::out_of_memory(Allocation::Context { n_ctx }, &tail)
                .unwrap_or(LlamaError::Context { n_ctx, tail }));
        };
        if options.part == ModelPart::TrunkWithStates {
            // SAFETY: the context is alive.
            unsafe { ffi::moeslice_keep_states(raw.as_ptr()) };
        }
        let threads = ThreadPool::new(settings.threads.max(settings.threads_batch));
        threads.attach(raw);
        Ok(Context {
            raw,
            watch,
            threads,
            n_batch: options.n_batch as usize,
            n_vocab: model.vocab().len(),
            n_embd: model.n_embd_out(),
            interrupt: settings.interrupt,
            model,
        })
    }

    /// Forgets all sequences.
    ///
    /// # Errors
    /// When llama.cpp cannot: a device may be lost.
    pub fn clear(&mut self) -> Result<(), LlamaError> {
        // SAFETY: the context is alive.
        self.guarded(0, |context, error, size| unsafe { ffi::moeslice_memory_clear(context, error, size) })
    }

    /// Makes a call that gives a status, and turns an exception into an error.
    pub(super) fn guarded(
        &self,
        n_tokens: usize,
        call: impl FnOnce(*mut ffi::llama_context, *mut c_char, usize) -> i32,
    ) -> Result<(), LlamaError> {
        let mut error = [0; ERROR_BYTES];
        if call(self.raw.as_ptr(), error.as_mut_ptr(), error.len()) == ffi::MOESLICE_THREW {
            self.model.lose_device();
            return Err(LlamaError::Threw { n_tokens, message: message(&error) });
        }
        Ok(())
    }

    /// Computes `batch` while `observer` watches, and waits until it is done.
    ///
    /// # Errors
    /// When the batch does not fit, llama.cpp fails, the observer fails, or the user interrupts.
    pub fn decode(&mut self, batch: &mut Batch, observer: &mut dyn Observer) -> Result<(), LlamaError> {
        let n_tokens = batch.len();
        self.run(n_tokens, observer, |context, error, size| {
            // SAFETY: context and batch are alive during the call.
            unsafe { ffi::moeslice_decode(context, batch.raw(), error, size) }
        })
    }

    /// Computes `batch` while nobody watches, and waits until it is done.
    ///
    /// # Errors
    /// As [`Context::decode`].
    pub fn compute(&mut self, batch: &mut Batch) -> Result<(), LlamaError> {
        self.decode(batch, &mut Nobody)
    }

    /// Computes the block of a context of [`ModelPart::Mtp`] for `tokens`, each from the state of the token before it:
    /// `states` `[n_embd, tokens]`, as [`Context::state`] gives them. The first token has position `first`.
    ///
    /// # Errors
    /// As [`Context::decode`].
    pub fn decode_states(
        &mut self,
        tokens: &[Token],
        states: &[f32],
        first: u32,
        observer: &mut dyn Observer,
    ) -> Result<(), LlamaError> {
        let (n_tokens, n_embd) = (tokens.len(), self.n_embd);
        if states.len() != n_tokens * n_embd {
            return Err(LlamaError::NoState { index: states.len() / n_embd.max(1) });
        }
        self.run(n_tokens, observer, |context, error, size| {
            // SAFETY: the context is alive; tokens and states are valid for their lengths, which were checked.
            unsafe {
                ffi::moeslice_decode_states(
                    context,
                    tokens.as_ptr(),
                    states.as_ptr(),
                    n_embd,
                    n_tokens as i32,
                    first as i32,
                    error,
                    size,
                )
            }
        })
    }

    /// The state `[n_embd]` of the token at `index` of the last batch, in a context of [`ModelPart::TrunkWithStates`].
    ///
    /// # Errors
    /// When llama.cpp cannot give it: a device may be lost.
    pub fn state(&self, index: usize) -> Result<Option<&[f32]>, LlamaError> {
        self.row(index, self.n_embd, ffi::moeslice_state)
    }

    /// Logits `[n_vocab]` of the token at `index` of the last batch; `None` when the pass left none.
    ///
    /// # Errors
    /// As [`Context::state`].
    pub fn logits(&self, index: usize) -> Result<Option<&[f32]>, LlamaError> {
        self.row(index, self.n_vocab, ffi::moeslice_logits)
    }

    /// Embedding `[n_embd]` of a sequence of the last batch, after a pass with [`PassOutputs::None`]: that of its last
    /// token.
    ///
    /// # Errors
    /// As [`Context::state`].
    pub fn embedding(&self, sequence: u32) -> Result<Option<&[f32]>, LlamaError> {
        self.row(sequence as usize, self.n_embd, ffi::moeslice_embedding)
    }

    fn row(&self, index: usize, length: usize, get: GetRow) -> Result<Option<&[f32]>, LlamaError> {
        let Ok(index) = i32::try_from(index) else { return Ok(None) };
        let mut row = std::ptr::null();
        self.guarded(0, |context, error, size| {
            // SAFETY: the context is alive; an index without a row gives NULL.
            unsafe { get(context, index, &mut row, error, size) }
        })?;
        // SAFETY: a row has as many floats as the model puts out or the vocabulary has tokens, and stays until the next
        // batch.
        Ok((!row.is_null()).then(|| unsafe { std::slice::from_raw_parts(row, length) }))
    }

    /// The devices that have multiplied matrices, the one with most of them first.
    pub fn devices(&self) -> Vec<String> {
        // SAFETY: no callback runs now, so nobody else looks at the watch.
        unsafe { (*self.watch.get()).devices() }
    }

    fn run(
        &mut self,
        n_tokens: usize,
        observer: &mut dyn Observer,
        call: impl FnOnce(*mut ffi::llama_context, *mut c_char, usize) -> i32,
    ) -> Result<(), LlamaError> {
        if n_tokens > self.n_batch {
            return Err(LlamaError::BatchTooLarge { n_tokens, capacity: self.n_batch });
        }
        if n_tokens == 0 {
            return Ok(());
        }
        log::clear();
        let mut error = [0; ERROR_BYTES];
        // SAFETY: no callback runs now, so nobody else looks at the watch; the observer is borrowed until `end`.
        unsafe { (*self.watch.get()).begin(observer) };
        let mut status = call(self.raw.as_ptr(), error.as_mut_ptr(), error.len());
        if status == 0 {
            // SAFETY: the context is alive. What still runs on the device may show nodes, so the observer stays until it is done.
            status = unsafe { ffi::moeslice_synchronize(self.raw.as_ptr(), error.as_mut_ptr(), error.len()) };
        }
        // SAFETY: the calls are over.
        let observed = unsafe { (*self.watch.get()).end() };
        let computed = match status {
            0 => Ok(()),
            2 if self.interrupt.is_set() => Err(LlamaError::Interrupted),
            ffi::MOESLICE_THREW => {
                let tail = log::tail(&message(&error));
                Err(LlamaError::out_of_memory(Allocation::Batch { n_tokens }, &tail)
                    .unwrap_or(LlamaError::Threw { n_tokens, message: message(&error) }))
            }
            status => {
                let tail = log::tail("");
                Err(LlamaError::out_of_memory(Allocation::Batch { n_tokens }, &tail)
                    .unwrap_or(LlamaError::Decode { n_tokens, status, tail }))
            }
        };
        if status == ffi::MOESLICE_THREW || matches!(observed, Some(ObserveError::Device { .. })) {
            self.model.lose_device();
        }
        match (observed, computed) {
            (None, computed) => computed,
            (Some(error), Ok(()) | Err(LlamaError::Interrupted)) => Err(error.into()),
            (Some(error), Err(then)) => Err(LlamaError::Both { error, then: Box::new(then) }),
        }
    }
}

/// An observer that looks at nothing.
struct Nobody;

impl Observer for Nobody {
    fn wants(&mut self, _: &Node<'_>) -> bool {
        false
    }

    fn observe(&mut self, _: &mut Node<'_>) -> Result<(), ObserveError> {
        Ok(())
    }
}

/// A call of the shim that gives a row of numbers.
type GetRow = unsafe extern "C" fn(*mut ffi::llama_context, i32, *mut *const f32, *mut c_char, usize) -> i32;

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if self.model.has_lost_device() {
            // Callbacks may still come: what they look at stays as well, and so do the threads.
            std::mem::forget(std::mem::take(&mut self.watch));
            self.threads.leak();
            return;
        }
        // SAFETY: freed once; the watch and the threads that it points to are dropped after this.
        unsafe { ffi::llama_free(self.raw.as_ptr()) }
    }
}

/// The threads that compute a context's graphs on the processor. Without them, llama.cpp makes some for each piece of
/// each graph.
struct ThreadPool(*mut ffi::ggml_threadpool);

impl ThreadPool {
    fn new(threads: u32) -> ThreadPool {
        // SAFETY: returns a plain struct.
        let mut params = unsafe { ffi::ggml_threadpool_params_default(threads as i32) };
        // SAFETY: the parameters are only read; NULL is what a context without a pool has.
        ThreadPool(unsafe { ffi::ggml_threadpool_new(&mut params) })
    }

    fn attach(&self, context: NonNull<ffi::llama_context>) {
        if !self.0.is_null() {
            // SAFETY: the context is alive, and the pool outlives it.
            unsafe { ffi::llama_attach_threadpool(context.as_ptr(), self.0, self.0) }
        }
    }

    /// Leaves the threads as they are for as long as the process lives.
    fn leak(&mut self) {
        self.0 = std::ptr::null_mut();
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: freed once, after the context that it serves.
            unsafe { ffi::ggml_threadpool_free(self.0) }
        }
    }
}

unsafe extern "C" fn on_abort_asked(user_data: *mut c_void) -> bool {
    // SAFETY: a static flag.
    unsafe { &*user_data.cast_const().cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
