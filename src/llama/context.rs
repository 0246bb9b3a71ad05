//! A context: the state in which batches of a model are computed.

use super::batch::Batch;
use super::error::LlamaError;
use super::model::Model;
use super::observer::{Observer, Watch, on_node};
use super::vocab::Token;
use super::{ERROR_BYTES, ffi, log, message};
use crate::progress::Interrupt;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::marker::PhantomData;
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
    /// Nothing: the graph ends before the LM head, and no buffer for logits is allocated, while every token still runs
    /// through the last layer. Reached by asking for pooled embeddings (`llm_graph_context::build_logits` and
    /// `llama_context::output_reserve` in llama.cpp).
    None,
}

/// Whether attention is computed by the fused kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlashAttention {
    /// Where the device can.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
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
    /// Tokens of one sequence.
    pub n_ctx: u32,
    /// Sequences held at once.
    pub n_seq: u32,
    /// Tokens of a batch, at most.
    pub n_batch: u32,
    /// Tokens computed at once, at most.
    pub n_ubatch: u32,
    /// Threads on the processor.
    pub threads: u32,
    /// What a pass leaves behind.
    pub outputs: PassOutputs,
    /// Which part of the model runs.
    pub part: ModelPart,
    /// Fused attention.
    pub flash_attention: FlashAttention,
    /// Whether keys and values are kept as F32 instead of F16. In F16, a difference in the last bit of an activation
    /// can become one of a thousandth: two models can be compared more closely without.
    pub exact_cache: bool,
    /// When it comes, the batch that is running on the processor ends early.
    pub interrupt: Interrupt,
}

/// A context of a model.
pub struct Context<'m> {
    raw: NonNull<ffi::llama_context>,
    /// Behind a cell, since llama.cpp keeps the pointer for as long as the context lives.
    watch: Box<UnsafeCell<Watch>>,
    n_batch: usize,
    n_vocab: usize,
    n_embd: usize,
    interrupt: Interrupt,
    _model: PhantomData<&'m Model>,
}

impl<'m> Context<'m> {
    /// Makes a context.
    ///
    /// # Errors
    /// When llama.cpp cannot, mostly for want of memory.
    pub fn new(model: &'m Model, options: &ContextOptions) -> Result<Context<'m>, LlamaError> {
        let n_ctx = options.n_ctx.saturating_mul(options.n_seq.max(1));
        let watch = Box::new(UnsafeCell::new(Watch::default()));
        // SAFETY: returns a plain struct.
        let mut params = unsafe { ffi::llama_context_default_params() };
        params.n_ctx = n_ctx;
        params.n_seq_max = options.n_seq.max(1);
        params.n_batch = options.n_batch;
        params.n_ubatch = options.n_ubatch.min(options.n_batch);
        params.n_threads = options.threads as i32;
        params.n_threads_batch = options.threads as i32;
        params.no_perf = true;
        params.flash_attn_type = match options.flash_attention {
            FlashAttention::Auto => ffi::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::On => ffi::LLAMA_FLASH_ATTN_TYPE_ENABLED,
            FlashAttention::Off => ffi::LLAMA_FLASH_ATTN_TYPE_DISABLED,
        };
        if options.part == ModelPart::Mtp {
            params.ctx_type = ffi::LLAMA_CONTEXT_TYPE_MTP;
        }
        if options.exact_cache {
            params.type_k = ffi::GGML_TYPE_F32;
            params.type_v = ffi::GGML_TYPE_F32;
        }
        if options.outputs == PassOutputs::None {
            params.embeddings = true;
            params.pooling_type = ffi::LLAMA_POOLING_TYPE_LAST;
        }
        params.cb_eval = Some(on_node);
        params.cb_eval_user_data = watch.get().cast();
        if let Some(flag) = options.interrupt.flag() {
            params.abort_callback = Some(on_abort_asked);
            params.abort_callback_data = (flag as *const AtomicBool).cast_mut().cast();
        }
        log::clear();
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the model is alive; the watch outlives the context, which is freed first.
        let raw =
            unsafe { ffi::moeslice_context_new(model.raw.as_ptr(), params, error.as_mut_ptr(), error.len()) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| LlamaError::Context { n_ctx, tail: log::tail(&message(&error)) })?;
        if options.part == ModelPart::TrunkWithStates {
            // SAFETY: the context is alive.
            unsafe { ffi::moeslice_keep_states(raw.as_ptr()) };
        }
        Ok(Context {
            raw,
            watch,
            n_batch: options.n_batch as usize,
            n_vocab: model.vocab().len(),
            n_embd: model.n_embd_out(),
            interrupt: options.interrupt,
            _model: PhantomData,
        })
    }

    /// Forgets all sequences.
    pub fn clear(&mut self) {
        // SAFETY: the context is alive; a model without memory has none to clear.
        unsafe {
            let memory = ffi::llama_get_memory(self.raw.as_ptr());
            if !memory.is_null() {
                ffi::llama_memory_clear(memory, true);
            }
        }
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

    /// As [`Context::decode`], through the encoder: for models that attend to later tokens as well.
    ///
    /// # Errors
    /// As [`Context::decode`].
    pub fn encode(&mut self, batch: &mut Batch, observer: &mut dyn Observer) -> Result<(), LlamaError> {
        let n_tokens = batch.len();
        self.run(n_tokens, observer, |context, error, size| {
            // SAFETY: context and batch are alive during the call.
            unsafe { ffi::moeslice_encode(context, batch.raw(), error, size) }
        })
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
            let message = format!("{} numbers are not the states of {n_tokens} tokens", states.len());
            return Err(LlamaError::Threw { n_tokens, message });
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
    pub fn state(&self, index: usize) -> Option<&[f32]> {
        // SAFETY: the context is alive; an index without a state gives NULL.
        let row = unsafe { ffi::moeslice_state(self.raw.as_ptr(), i32::try_from(index).ok()?) };
        // SAFETY: a row has as many floats as the model puts out, and stays until the next batch.
        (!row.is_null()).then(|| unsafe { std::slice::from_raw_parts(row, self.n_embd) })
    }

    fn run(
        &mut self,
        n_tokens: usize,
        observer: &mut dyn Observer,
        call: impl FnOnce(*mut ffi::llama_context, *mut std::ffi::c_char, usize) -> i32,
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
        match (observed, status) {
            (Some(error), _) => Err(error.into()),
            (None, 0) => Ok(()),
            (None, ffi::MOESLICE_THREW) => Err(LlamaError::Threw { n_tokens, message: message(&error) }),
            (None, 2) if self.interrupt.is_set() => Err(LlamaError::Interrupted),
            (None, status) => Err(LlamaError::Decode { n_tokens, status, tail: log::tail("") }),
        }
    }

    /// Logits `[n_vocab]` of the token at `index` of the last batch; `None` when the pass left none.
    pub fn logits(&self, index: usize) -> Option<&[f32]> {
        // SAFETY: the context is alive; an index without output gives NULL.
        let row = unsafe { ffi::llama_get_logits_ith(self.raw.as_ptr(), i32::try_from(index).ok()?) };
        // SAFETY: a row has as many floats as the vocabulary has tokens, and stays until the next batch.
        (!row.is_null()).then(|| unsafe { std::slice::from_raw_parts(row, self.n_vocab) })
    }
}

impl Context<'_> {
    /// Embedding `[n_embd]` of a sequence of the last batch, after a pass with [`PassOutputs::None`]: that of its last
    /// token.
    pub fn embedding(&self, sequence: u32) -> Option<&[f32]> {
        // SAFETY: the context is alive; a sequence that was not in the batch gives NULL.
        let row = unsafe { ffi::llama_get_embeddings_seq(self.raw.as_ptr(), i32::try_from(sequence).ok()?) };
        // SAFETY: a row has as many floats as the model puts out, and stays until the next batch.
        (!row.is_null()).then(|| unsafe { std::slice::from_raw_parts(row, self.n_embd) })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: freed once; the watch that it points to is dropped after this.
        unsafe { ffi::llama_free(self.raw.as_ptr()) }
    }
}

unsafe extern "C" fn on_abort_asked(user_data: *mut c_void) -> bool {
    // SAFETY: a static flag.
    unsafe { &*user_data.cast_const().cast::<AtomicBool>() }.load(Ordering::Relaxed)
}
