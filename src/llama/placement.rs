//! Where a model goes when it is loaded, and how.

use super::backend::{BufferType, Device};
use super::error::LlamaError;
use super::ffi;
use std::ffi::CString;

/// Where a model goes when it is loaded, and how.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The devices to use besides the processor: `None` for all that llama.cpp would take, an empty list for none.
    pub devices: Option<Vec<Device>>,
    /// Layers to put on those devices; negative: all.
    pub gpu_layers: i32,
    /// How the model is split over several devices.
    pub split_mode: SplitMode,
    /// The share of each device, in proportion to the others; empty for what llama.cpp finds.
    pub tensor_split: Vec<f32>,
    /// Index of the device for all of the model ([`SplitMode::None`]), or for what is not split ([`SplitMode::Row`]).
    pub main_gpu: i32,
    /// Patterns of tensor names and the memory that the matching tensors go to; the first match holds.
    pub overrides: Vec<(String, BufferType)>,
    /// How the weights are read.
    pub load_mode: LoadMode,
    /// Metadata that hold instead of the file's.
    pub kv_overrides: Vec<KvOverride>,
    /// Whether weights may be kept in another layout that the processor computes faster with.
    pub no_repack: bool,
    /// Whether weights on the processor stay out of memory that devices reach fast.
    pub no_host: bool,
    /// Whether the weights are checked for values that are no numbers.
    pub check_tensors: bool,
    /// Whether blocks of multi-token prediction (MTP) are loaded.
    pub mtp: bool,
    /// Whether the vocabulary alone is loaded: text becomes tokens, and nothing can be computed.
    pub vocab_only: bool,
    /// Whether memory is planned and none is taken, neither by the model nor by its contexts: nothing can be computed.
    pub planned: bool,
}

impl Placement {
    /// The pattern of the names of the tensors with the experts of any layer, as llama.cpp's own flags mean them.
    pub const EXPERTS: &str = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps";

    /// The pattern of those of `layer`.
    pub fn experts_of(layer: u32) -> String {
        format!(r"blk\.{layer}{}", Self::EXPERTS)
    }
}

/// How a model is split over several devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitMode {
    /// One device takes all.
    None,
    /// Layer by layer.
    #[default]
    Layer,
    /// The rows of each weight.
    Row,
    /// Weights, keys and values.
    Tensor,
}

/// How the weights are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMode {
    /// Mapped, unless a device cannot.
    #[default]
    Auto,
    /// Read.
    None,
    /// Mapped from the file.
    Mmap,
    /// Read, and kept in memory.
    Mlock,
    /// Mapped, and kept in memory.
    MmapMlock,
    /// Read past the system's cache, where that is possible.
    DirectIo,
}

impl LoadMode {
    /// The name, as `-lm` takes it.
    pub fn name(self) -> &'static str {
        match self {
            LoadMode::Auto => "auto",
            LoadMode::None => "none",
            LoadMode::Mmap => "mmap",
            LoadMode::Mlock => "mlock",
            LoadMode::MmapMlock => "mmap+mlock",
            LoadMode::DirectIo => "dio",
        }
    }
}

/// A metadata entry that holds instead of the file's.
#[derive(Clone, Debug, PartialEq)]
pub struct KvOverride {
    /// The key, at most 127 bytes.
    pub key: String,
    /// Its value.
    pub value: KvValue,
}

/// The value of a [`KvOverride`].
#[derive(Clone, Debug, PartialEq)]
pub enum KvValue {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text of at most 127 bytes.
    Str(String),
}

impl KvOverride {
    /// The entry as llama.cpp takes it.
    fn raw(&self) -> Result<ffi::llama_model_kv_override, LlamaError> {
        // SAFETY: a plain struct, for which zeros are valid: an empty key and the number 0.
        let mut raw: ffi::llama_model_kv_override = unsafe { std::mem::zeroed() };
        put(&mut raw.key, &self.key)?;
        match &self.value {
            KvValue::Int(value) => {
                raw.tag = ffi::LLAMA_KV_OVERRIDE_TYPE_INT;
                raw.__bindgen_anon_1.val_i64 = *value;
            }
            KvValue::Float(value) => {
                raw.tag = ffi::LLAMA_KV_OVERRIDE_TYPE_FLOAT;
                raw.__bindgen_anon_1.val_f64 = *value;
            }
            KvValue::Bool(value) => {
                raw.tag = ffi::LLAMA_KV_OVERRIDE_TYPE_BOOL;
                raw.__bindgen_anon_1.val_bool = *value;
            }
            KvValue::Str(value) => {
                raw.tag = ffi::LLAMA_KV_OVERRIDE_TYPE_STR;
                // SAFETY: the text is the variant that the tag names, and any bytes are valid in it.
                put(unsafe { &mut raw.__bindgen_anon_1.val_str }, value)?;
            }
        }
        Ok(raw)
    }
}

/// Writes `text` and a NUL into `field`.
fn put(field: &mut [std::ffi::c_char], text: &str) -> Result<(), LlamaError> {
    if text.len() >= field.len() {
        return Err(LlamaError::TooLong { text: text.to_owned(), limit: field.len() - 1 });
    }
    field.iter_mut().zip(text.bytes().chain([0])).for_each(|(to, byte)| *to = byte as std::ffi::c_char);
    Ok(())
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
    params.split_mode = match placement.split_mode {
        SplitMode::None => ffi::LLAMA_SPLIT_MODE_NONE,
        SplitMode::Layer => ffi::LLAMA_SPLIT_MODE_LAYER,
        SplitMode::Row => ffi::LLAMA_SPLIT_MODE_ROW,
        SplitMode::Tensor => ffi::LLAMA_SPLIT_MODE_TENSOR,
    };
    params.main_gpu = placement.main_gpu;
    // SAFETY: no preconditions.
    let mut shares = vec![0.0; unsafe { ffi::llama_max_devices() }];
    if !placement.tensor_split.is_empty() {
        if placement.tensor_split.len() > shares.len() {
            return Err(LlamaError::TooManyShares {
                given: placement.tensor_split.len(),
                limit: shares.len(),
            });
        }
        shares[..placement.tensor_split.len()].copy_from_slice(&placement.tensor_split);
        params.tensor_split = shares.as_ptr();
    }
    params.load_mtp = placement.mtp;
    params.vocab_only = placement.vocab_only;
    params.use_extra_bufts = !placement.no_repack;
    params.no_host = placement.no_host;
    params.check_tensors = placement.check_tensors;
    params.load_mode = match placement.load_mode {
        LoadMode::Auto => ffi::LLAMA_LOAD_MODE_AUTO,
        LoadMode::None => ffi::LLAMA_LOAD_MODE_NONE,
        LoadMode::Mmap => ffi::LLAMA_LOAD_MODE_MMAP,
        LoadMode::Mlock => ffi::LLAMA_LOAD_MODE_MLOCK,
        LoadMode::MmapMlock => ffi::LLAMA_LOAD_MODE_MMAP_MLOCK,
        LoadMode::DirectIo => ffi::LLAMA_LOAD_MODE_DIRECT_IO,
    };
    if placement.planned {
        params.no_alloc = true;
        // What is mapped would be there.
        params.load_mode = ffi::LLAMA_LOAD_MODE_NONE;
    }
    let mut entries = placement.kv_overrides.iter().map(KvOverride::raw).collect::<Result<Vec<_>, _>>()?;
    if !entries.is_empty() {
        // An empty key ends the list.
        // SAFETY: a plain struct, for which zeros are valid.
        entries.push(unsafe { std::mem::zeroed() });
        params.kv_overrides = entries.as_ptr();
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
        .map(|(pattern, (_, memory))| ffi::llama_model_tensor_buft_override {
            pattern: pattern.as_ptr(),
            buft: memory.raw,
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
