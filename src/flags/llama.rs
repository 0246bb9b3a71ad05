//! The flags that name a model and say how llama.cpp runs it, shared by all commands that do. Names, short forms,
//! values and environment variables are llama.cpp's.

use super::llama_values::{
    LayerCount, Margins, Overrides, Shares, cache_type, flash_attention, gpu_layers, kv_overrides,
    kv_unified, load_mode, margins, numa, shares, split_mode, switch, threads, truthy,
};
use super::rpc::RpcFlags;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::gguf;
use crate::llama::{
    Backend, BufferType, CacheType, ContextSettings, Device, DeviceKind, FlashAttention, LoadMode, Numa,
    Placement, SplitMode,
};
use crate::progress::Interrupt;
use crate::sys::usable_cores;
use crate::windows::KvUnified;
use clap::Args;

/// Seconds without any progress after which the device is taken to hang: compiling the shaders of a large model on a
/// slow machine takes minutes, and nothing else does.
pub const STALL_TIMEOUT: u64 = 600;

/// How llama.cpp runs the model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Running the model")]
pub struct LlamaFlags {
    /// Tokens of a window; 0 for as many as the model was trained on
    #[arg(short = 'c', long, value_name = "N", default_value_t = 512, env = "LLAMA_ARG_CTX_SIZE", value_parser = clap::value_parser!(u32).range(0..=1 << 22))]
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once; a longer window is computed in slices
    #[arg(short = 'b', long, value_name = "N", default_value_t = 2048, env = "LLAMA_ARG_BATCH", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub batch_size: u32,
    /// Tokens computed at once (-ub)
    #[arg(long, value_name = "N", default_value_t = 512, env = "LLAMA_ARG_UBATCH", value_parser = clap::value_parser!(u32).range(0..=1 << 22))]
    pub ubatch_size: u32,
    /// Compute tokens of several windows at once, over a common store of keys and values (-kvu, -no-kvu); auto: where
    /// a GPU takes part
    #[arg(long, value_name = "auto|on|off", default_value = "auto", num_args = 0..=1, default_missing_value = "on", env = "LLAMA_ARG_KV_UNIFIED", value_parser = kv_unified)]
    pub kv_unified: KvUnified,
    /// Threads on the processor; default: its physical cores, as far as this process may use them
    #[arg(short = 't', long, value_name = "N", env = "LLAMA_ARG_THREADS", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// Threads on the processor for batches (-tb); default: as --threads
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads_batch: Option<u32>,
    /// Layers to put on the GPU: a number, "all", or "auto" for as many as fit (-ngl)
    #[arg(long, value_name = "N", default_value = "auto", env = "LLAMA_ARG_N_GPU_LAYERS", value_parser = gpu_layers, allow_negative_numbers = true)]
    pub gpu_layers: LayerCount,
    /// Put on the GPU what fits into its free memory, where -ngl, -ts and -ot leave that open (-fit)
    #[arg(long, value_name = "on|off", default_value = "on", env = "LLAMA_ARG_FIT", value_parser = switch, action = clap::ArgAction::Set)]
    pub fit: bool,
    /// Load a model that does not fit into the free memory all the same
    #[arg(long)]
    pub no_memory_check: bool,
    /// Memory of each GPU, in MiB, that --fit leaves free (-fitt)
    #[arg(long, value_name = "MIB,…", default_value = "1024", env = "LLAMA_ARG_FIT_TARGET", value_parser = margins)]
    pub fit_target: Margins,
    /// Devices to run on, separated by commas; "none" for the processor alone (-dev)
    #[arg(long, value_name = "DEV,…", value_delimiter = ',', env = "LLAMA_ARG_DEVICE")]
    pub device: Vec<String>,
    #[command(flatten)]
    pub rpc: RpcFlags,
    /// How a model is split over several devices (-sm)
    #[arg(long, value_name = "none|layer|row|tensor", default_value = "layer", env = "LLAMA_ARG_SPLIT_MODE", value_parser = split_mode)]
    pub split_mode: SplitMode,
    /// Share of the model for each device, such as 3,1 (-ts)
    #[arg(long, value_name = "N0,N1,…", env = "LLAMA_ARG_TENSOR_SPLIT", value_parser = shares)]
    pub tensor_split: Option<Shares>,
    /// The device for the whole model (-sm none) or for what is not split (-sm row), by its place (-mg)
    #[arg(
        long,
        value_name = "INDEX",
        default_value_t = 0,
        env = "LLAMA_ARG_MAIN_GPU",
        allow_negative_numbers = true
    )]
    pub main_gpu: i32,
    /// Keep tensors whose name matches PATTERN in the memory MEM: that of a device, or such as Vulkan_Host (-ot)
    #[arg(long, value_name = "PATTERN=MEM,…", value_delimiter = ',', env = "LLAMA_ARG_OVERRIDE_TENSOR")]
    pub override_tensor: Vec<String>,
    /// Keep all experts in the processor's memory (-cmoe)
    #[arg(long, env = "LLAMA_ARG_CPU_MOE", value_parser = truthy)]
    pub cpu_moe: bool,
    /// Keep the experts of the first N layers in the processor's memory (-ncmoe)
    #[arg(long, value_name = "N", env = "LLAMA_ARG_N_CPU_MOE", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub n_cpu_moe: Option<u32>,
    /// Keep the dense feed-forward weights of the first N layers in the processor's memory (-ncffn)
    #[arg(long, value_name = "N", env = "LLAMA_ARG_N_CPU_FFN", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub n_cpu_ffn: Option<u32>,
    /// Memory of the GPU, in MiB, that caches experts kept in the processor's memory
    #[arg(long, value_name = "N", default_value_t = 0, env = "LLAMA_ARG_MOE_CACHE_MIB", value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    pub moe_cache_mib: u32,
    /// Fused attention (-fa)
    #[arg(long, value_name = "on|off|auto", default_value = "auto", env = "LLAMA_ARG_FLASH_ATTN", value_parser = flash_attention, allow_negative_numbers = true)]
    pub flash_attn: FlashAttention,
    /// Element type of the stored keys (-ctk)
    #[arg(long, value_name = "TYPE", default_value = "f16", env = "LLAMA_ARG_CACHE_TYPE_K", value_parser = cache_type)]
    pub cache_type_k: CacheType,
    /// Element type of the stored values (-ctv)
    #[arg(long, value_name = "TYPE", default_value = "f16", env = "LLAMA_ARG_CACHE_TYPE_V", value_parser = cache_type)]
    pub cache_type_v: CacheType,
    /// Keep keys and values on the devices of their layers (-kvo; off: -nkvo, --no-kv-offload)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on", env = "LLAMA_ARG_KV_OFFLOAD", value_parser = switch, action = clap::ArgAction::Set)]
    pub kv_offload: bool,
    /// Give up when nothing has gone on for so many seconds; 0 waits without limit
    #[arg(long, value_name = "SECONDS", default_value_t = STALL_TIMEOUT)]
    pub stall_timeout: u64,
    /// Compute on a device with weights in the processor's memory, where it pays (off: --no-op-offload)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on", value_parser = switch, action = clap::ArgAction::Set)]
    pub op_offload: bool,
    /// How the weights are read: auto, none, mmap, mlock, mmap+mlock or dio (-lm)
    #[arg(long, value_name = "MODE", default_value = "auto", env = "LLAMA_ARG_LOAD_MODE", value_parser = load_mode)]
    pub load_mode: LoadMode,
    /// Lay weights on the processor out as it computes fastest (off: -nr, --no-repack)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on", env = "LLAMA_ARG_REPACK", value_parser = switch, action = clap::ArgAction::Set)]
    pub repack: bool,
    /// Keep weights on the processor out of memory that the GPU reaches fast
    #[arg(long, env = "LLAMA_ARG_NO_HOST", value_parser = truthy)]
    pub no_host: bool,
    /// Spread threads and memory over the nodes of a machine that has several: distribute, isolate or numactl
    #[arg(long, value_name = "TYPE", env = "LLAMA_ARG_NUMA", value_parser = numa)]
    pub numa: Option<Numa>,
    /// Replace metadata of the model while it runs; types: int, float, bool, str
    #[arg(long, value_name = "KEY=TYPE:VALUE,…", value_parser = kv_overrides)]
    pub override_kv: Vec<Overrides>,
    /// Check the weights for values that are no numbers
    #[arg(long)]
    pub check_tensors: bool,
}

impl LlamaFlags {
    /// Starts llama.cpp. The drivers of GPUs and the RPC servers are left alone when none is to be used.
    pub fn start(&self) -> Result<&'static Backend, Failure> {
        let backend = if self.processor_alone() {
            Backend::start_without_gpus().map_err(Failure::running)?
        } else {
            self.rpc.start()?
        };
        if let Some(numa) = self.numa {
            backend.spread(numa);
        }
        Ok(backend)
    }

    /// What may have gone silent besides a device of this machine.
    pub fn suspects(&self) -> String {
        if self.processor_alone() { String::new() } else { self.rpc.suspects() }
    }

    /// What contexts are made with.
    pub fn settings(&self, interrupt: Interrupt) -> ContextSettings {
        let threads = self.threads.unwrap_or_else(|| usable_cores().min(512));
        ContextSettings {
            threads,
            threads_batch: self.threads_batch.unwrap_or(threads),
            flash_attention: self.flash_attn,
            cache_k: self.cache_type_k,
            cache_v: self.cache_type_v,
            kv_offload: self.kv_offload,
            op_offload: self.op_offload,
            moe_cache_bytes: (self.moe_cache_mib as usize) << 20,
            interrupt,
            ..ContextSettings::default()
        }
    }

    /// Tokens of a window of `model`.
    pub fn window(&self, model: &gguf::Model) -> u32 {
        let trained = || model.arch_value("context_length").and_then(|value| value.as_u64());
        match self.ctx_size {
            0 => trained().and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(512).max(1),
            tokens => tokens,
        }
    }

    /// The devices that would compute a model placed so, as llama.cpp chooses and orders them: those of RPC servers, and
    /// discrete GPUs where there are any, else integrated ones; else the processor.
    pub fn devices(&self, backend: &Backend, placement: &Placement) -> Vec<Device> {
        let all = backend.devices();
        let of = |kind| all.iter().filter(|device| device.kind == kind).cloned().collect::<Vec<Device>>();
        let gpus = placement.devices.clone().unwrap_or_else(|| {
            let (mut gpus, local): (Vec<_>, Vec<_>) =
                of(DeviceKind::Gpu).into_iter().partition(Device::is_remote);
            gpus.extend(if local.is_empty() { of(DeviceKind::IntegratedGpu) } else { local });
            gpus
        });
        if gpus.is_empty() || self.gpu_layers == LayerCount::Some(0) { of(DeviceKind::Cpu) } else { gpus }
    }

    /// Whether no device but the processor is named.
    fn processor_alone(&self) -> bool {
        let is_processor = |name: &String| ["none", "CPU"].iter().any(|word| name.eq_ignore_ascii_case(word));
        !self.device.is_empty() && self.device.iter().all(is_processor)
    }

    /// Where the model goes. Fails on a device that does not exist.
    pub fn placement(&self, backend: &Backend, console: Console) -> Result<Placement, Failure> {
        let none = self.device.iter().any(|name| name.eq_ignore_ascii_case("none"));
        if none && self.device.len() > 1 {
            return Err(Failure::arguments("--device none cannot be joined with other devices"));
        }
        let devices = match self.device.as_slice() {
            [] => None,
            _ if none => Some(Vec::new()),
            // The processor always takes part, and is no device to put layers on.
            names => Some(
                backend
                    .devices_named(names)
                    .map_err(Failure::arguments)?
                    .into_iter()
                    .filter(Device::is_gpu)
                    .collect::<Vec<Device>>(),
            ),
        };
        let n_gpus = devices
            .as_ref()
            .map_or_else(|| backend.devices().iter().filter(|device| device.is_gpu()).count(), Vec::len);
        if let LayerCount::Some(layers @ 1..) = self.gpu_layers
            && n_gpus == 0
        {
            console.remark(&format!(
                "--gpu-layers {layers} has no effect: no GPU is used here, the model runs on the processor"
            ));
        }
        if self.split_mode == SplitMode::None && n_gpus > 0 && self.main_gpu >= n_gpus as i32 {
            return Err(Failure::arguments(format!(
                "--main-gpu {}: there are {n_gpus} GPUs, counted from 0",
                self.main_gpu
            )));
        }
        Ok(Placement {
            devices,
            gpu_layers: self.gpu_layers.raw(),
            split_mode: self.split_mode,
            tensor_split: self.tensor_split.as_deref().map_or_else(Vec::new, <[f32]>::to_vec),
            main_gpu: self.main_gpu,
            overrides: self.overrides(backend)?,
            load_mode: self.load_mode,
            kv_overrides: self.override_kv.iter().flat_map(|entries| entries.iter().cloned()).collect(),
            no_repack: !self.repack,
            no_host: self.no_host,
            check_tensors: self.check_tensors,
            mtp: false,
            vocab_only: false,
            planned: false,
        })
    }

    fn overrides(&self, backend: &Backend) -> Result<Vec<(String, BufferType)>, Failure> {
        // Asking a device for its memory is to use it, so only when there is something to look up.
        let memories = if self.override_tensor.is_empty() { Vec::new() } else { backend.buffer_types() };
        let mut overrides = Vec::new();
        for text in &self.override_tensor {
            let (pattern, name) = text.split_once('=').ok_or_else(|| {
                Failure::arguments(format!("--override-tensor {text:?}: expected PATTERN=MEMORY"))
            })?;
            let memory = memories.iter().find(|memory| memory.name.eq_ignore_ascii_case(name));
            let memory = memory.ok_or_else(|| {
                let known: Vec<&str> = memories.iter().map(|memory| memory.name.as_str()).collect();
                Failure::arguments(format!(
                    "--override-tensor {text:?}: there is no memory {name:?} here; there are: {}",
                    known.join(", ")
                ))
            })?;
            overrides.push((pattern.to_owned(), memory.clone()));
        }
        let processor = backend.devices().into_iter().find(|device| device.kind == DeviceKind::Cpu);
        let processor = processor
            .ok_or_else(|| Failure::running(anyhow::anyhow!("llama.cpp has no processor backend here")))?
            .buffer_type();
        if self.cpu_moe {
            overrides.push((Placement::EXPERTS.to_owned(), processor.clone()));
        }
        let experts = (0..self.n_cpu_moe.unwrap_or(0)).map(Placement::experts_of);
        // Those of dense layers, as llama.cpp's flag of the same name means them.
        let dense =
            (0..self.n_cpu_ffn.unwrap_or(0)).map(|layer| format!(r"blk\.{layer}\.ffn_(up|down|gate)\."));
        overrides.extend(experts.chain(dense).map(|pattern| (pattern, processor.clone())));
        Ok(overrides)
    }
}
