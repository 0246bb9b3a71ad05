//! What a context is made with besides its sizes.

use super::backend::text;
use super::ffi;
use crate::progress::Interrupt;
use std::fmt;

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

/// The element type of stored keys or values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CacheType(pub(super) ffi::ggml_type);

impl CacheType {
    /// Half precision, llama.cpp's default.
    pub const F16: CacheType = CacheType(ffi::GGML_TYPE_F16);
    /// Single precision: two models can be compared more closely, since in F16 a difference in the last bit of an
    /// activation can become one of a thousandth.
    pub const F32: CacheType = CacheType(ffi::GGML_TYPE_F32);

    /// All that llama.cpp's own tools take, in their order.
    const ALL: [CacheType; 9] = [
        CacheType::F32,
        CacheType::F16,
        CacheType(ffi::GGML_TYPE_BF16),
        CacheType(ffi::GGML_TYPE_Q8_0),
        CacheType(ffi::GGML_TYPE_Q4_0),
        CacheType(ffi::GGML_TYPE_Q4_1),
        CacheType(ffi::GGML_TYPE_IQ4_NL),
        CacheType(ffi::GGML_TYPE_Q5_0),
        CacheType(ffi::GGML_TYPE_Q5_1),
    ];

    /// The type of that name, such as `q8_0`.
    pub fn named(name: &str) -> Option<CacheType> {
        Self::ALL.into_iter().find(|ty| ty.to_string() == name)
    }

    /// The names of all types that there are.
    pub fn names() -> Vec<String> {
        Self::ALL.iter().map(CacheType::to_string).collect()
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: a type that ggml knows; the name is a static string.
        f.write_str(&unsafe { text(ffi::ggml_type_name(self.0)) })
    }
}

impl fmt::Debug for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a context is made with besides its sizes.
#[derive(Clone, Copy, Debug)]
pub struct ContextSettings {
    /// Threads on the processor, for one token at a time.
    pub threads: u32,
    /// Threads on the processor, for batches.
    pub threads_batch: u32,
    /// Fused attention.
    pub flash_attention: FlashAttention,
    /// Element type of the stored keys.
    pub cache_k: CacheType,
    /// Element type of the stored values.
    pub cache_v: CacheType,
    /// Whether keys and values lie on the devices of their layers rather than in the processor's memory.
    pub kv_offload: bool,
    /// Whether a device computes with weights that lie in the processor's memory, when there is enough to compute.
    pub op_offload: bool,
    /// Bytes of the devices' memory in which llama.cpp keeps experts that lie in the processor's memory; 0 for none.
    pub moe_cache_bytes: usize,
    /// Whether observers can watch the graph. Without, it runs as it does in use, with all that is fused.
    pub observed: bool,
    /// When it comes, the batch that is running on the processor ends early, and a pass ends with
    /// [`LlamaError::Interrupted`](super::LlamaError::Interrupted).
    pub interrupt: Interrupt,
}

impl Default for ContextSettings {
    /// One thread, and llama.cpp's own defaults.
    fn default() -> Self {
        ContextSettings {
            threads: 1,
            threads_batch: 1,
            flash_attention: FlashAttention::Auto,
            cache_k: CacheType::F16,
            cache_v: CacheType::F16,
            kv_offload: true,
            op_offload: true,
            moe_cache_bytes: 0,
            observed: true,
            interrupt: Interrupt::NEVER,
        }
    }
}

impl ContextSettings {
    /// How eagerly the threads of a context wait for work, from 0 to 100.
    pub fn poll() -> u32 {
        // SAFETY: returns a plain struct.
        unsafe { ffi::ggml_threadpool_params_default(1) }.poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_types_are_found_by_the_names_of_llama_cpp() {
        assert_eq!(CacheType::named("q8_0"), Some(CacheType(ffi::GGML_TYPE_Q8_0)));
        assert_eq!(CacheType::named("f16"), Some(CacheType::F16));
        assert_eq!(CacheType::named("q6_K"), None);
        assert_eq!(CacheType::names().len(), 9);
    }
}
