//! The flags that name a model and say how llama.cpp runs it, shared by all commands that do. Names, short forms and
//! environment variables are llama.cpp's.

use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::llama::{
    Backend, BufferType, ContextSettings, Device, FlashAttention, LlamaError, LoadMode, Model, Placement,
};
use crate::progress::{Interrupt, Unit, stage};
use crate::sys::usable_cores;
use clap::Args;
use std::path::Path;

/// Seconds without any progress after which the device is taken to hang: compiling the shaders of a large model on a
/// slow machine takes minutes, and nothing else does.
pub const STALL_TIMEOUT: u64 = 600;

/// How llama.cpp runs the model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Running the model")]
pub struct LlamaFlags {
    /// Tokens of a window
    #[arg(short = 'c', long, value_name = "N", default_value_t = 512, env = "LLAMA_ARG_CTX_SIZE", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once
    #[arg(short = 'b', long, value_name = "N", default_value_t = 2048, env = "LLAMA_ARG_BATCH", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub batch_size: u32,
    /// Tokens computed at once (-ub)
    #[arg(long, value_name = "N", default_value_t = 512, env = "LLAMA_ARG_UBATCH", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub ubatch_size: u32,
    /// Threads on the processor; default: its physical cores
    #[arg(short = 't', long, value_name = "N", env = "LLAMA_ARG_THREADS", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub threads: Option<u32>,
    /// Layers to put on the GPU: a number, or "all" (-ngl)
    #[arg(long, value_name = "N", default_value = "all", env = "LLAMA_ARG_N_GPU_LAYERS", value_parser = gpu_layers, allow_hyphen_values = true)]
    pub gpu_layers: i32,
    /// Devices to run on, separated by commas; "none" for the processor alone (-dev)
    #[arg(long, value_name = "DEV,…", value_delimiter = ',', env = "LLAMA_ARG_DEVICE")]
    pub device: Vec<String>,
    /// Keep tensors whose name matches PATTERN in the memory of DEV (-ot)
    #[arg(long, value_name = "PATTERN=DEV,…", value_delimiter = ',', env = "LLAMA_ARG_OVERRIDE_TENSOR")]
    pub override_tensor: Vec<String>,
    /// Keep all experts in the processor's memory (-cmoe)
    #[arg(long, env = "LLAMA_ARG_CPU_MOE", value_parser = switch)]
    pub cpu_moe: bool,
    /// Keep the experts of the first N layers in the processor's memory (-ncmoe)
    #[arg(long, value_name = "N", env = "LLAMA_ARG_N_CPU_MOE", value_parser = clap::value_parser!(u32).range(0..=4096))]
    pub n_cpu_moe: Option<u32>,
    /// Fused attention (-fa)
    #[arg(long, value_name = "on|off|auto", default_value = "auto", env = "LLAMA_ARG_FLASH_ATTN", value_parser = flash_attention, allow_hyphen_values = true)]
    pub flash_attn: FlashAttention,
    /// Give up when nothing has gone on for so many seconds; 0 waits without limit
    #[arg(long, value_name = "SECONDS", default_value_t = STALL_TIMEOUT)]
    pub stall_timeout: u64,
    /// Read the weights instead of mapping the file
    #[arg(long)]
    pub no_mmap: bool,
}

/// The words that llama.cpp takes for a switch (`is_truthy` and `is_falsey` in its `common/arg.cpp`).
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "enabled" | "true" | "1" => Ok(true),
        "off" | "disabled" | "false" | "0" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

fn flash_attention(text: &str) -> Result<FlashAttention, String> {
    match text {
        "auto" | "-1" => Ok(FlashAttention::Auto),
        _ => switch(text)
            .map(|on| if on { FlashAttention::On } else { FlashAttention::Off })
            .map_err(|_| "expected on, off or auto".to_owned()),
    }
}

fn gpu_layers(text: &str) -> Result<i32, String> {
    match text {
        "all" | "auto" => Ok(-1),
        _ => text.parse().map_err(|_| "expected a number of layers, or \"all\"".to_owned()),
    }
}

impl LlamaFlags {
    /// Threads on the processor.
    pub fn threads(&self) -> u32 {
        self.threads.unwrap_or_else(|| usable_cores().min(512))
    }

    /// What contexts are made with.
    pub fn settings(&self, interrupt: Interrupt) -> ContextSettings {
        ContextSettings {
            threads: self.threads(),
            threads_batch: self.threads(),
            flash_attention: self.flash_attn,
            interrupt,
            ..ContextSettings::default()
        }
    }

    /// Where the model goes, and the names of the devices that will compute. Fails on a device that does not exist.
    pub fn placement(
        &self,
        backend: &Backend,
        console: Console,
    ) -> Result<(Placement, Vec<String>), Failure> {
        let all = backend.devices();
        let none = self.device.iter().any(|name| name.eq_ignore_ascii_case("none"));
        if none && self.device.len() > 1 {
            return Err(Failure::arguments("--device none cannot be joined with other devices"));
        }
        let chosen = match self.device.as_slice() {
            [] => None,
            _ if none => Some(Vec::new()),
            // The processor always takes part, and is no device to put layers on.
            names => Some(
                backend
                    .devices_named(names)
                    .map_err(Failure::arguments)?
                    .into_iter()
                    .filter(Device::is_gpu)
                    .collect(),
            ),
        };
        let gpus: Vec<String> = match &chosen {
            Some(devices) => devices.iter().map(|device: &Device| device.name.clone()).collect(),
            None => all.iter().filter(|device| device.is_gpu()).map(|device| device.name.clone()).collect(),
        };
        if gpus.is_empty() && self.gpu_layers > 0 {
            console.remark(&format!(
                "--gpu-layers {} has no effect: no GPU is used here, the model runs on the processor",
                self.gpu_layers
            ));
        }
        let cpu = || all.iter().find(|device| device.kind == crate::llama::DeviceKind::Cpu).cloned();
        let cpu = cpu()
            .ok_or_else(|| Failure::running(anyhow::anyhow!("llama.cpp has no processor backend here")))?;
        let placement = Placement {
            devices: chosen,
            gpu_layers: self.gpu_layers,
            overrides: self.overrides(backend, &cpu)?,
            load_mode: if self.no_mmap { LoadMode::None } else { LoadMode::Auto },
            ..Placement::default()
        };
        let names = if gpus.is_empty() || self.gpu_layers == 0 { vec![cpu.name] } else { gpus };
        Ok((placement, names))
    }

    fn overrides(&self, backend: &Backend, cpu: &Device) -> Result<Vec<(String, BufferType)>, Failure> {
        let mut overrides = Vec::new();
        for text in &self.override_tensor {
            let (pattern, name) = text.rsplit_once('=').ok_or_else(|| {
                Failure::arguments(format!("--override-tensor {text:?}: expected PATTERN=DEVICE"))
            })?;
            let device = backend.devices_named(&[name.to_owned()]).map_err(Failure::arguments)?.remove(0);
            overrides.push((pattern.to_owned(), device.buffer_type()));
        }
        // Any tensor with experts in it, as llama.cpp's flags of the same names mean it.
        let experts = r"ffn_(up|down|gate|gate_up)_(ch|)exps";
        if self.cpu_moe {
            overrides.push((format!(r"\.{experts}"), cpu.buffer_type()));
        }
        for layer in 0..self.n_cpu_moe.unwrap_or(0) {
            overrides.push((format!(r"blk\.{layer}\.{experts}"), cpu.buffer_type()));
        }
        Ok(overrides)
    }

    /// Loads the model, with a progress bar.
    pub fn load(
        &self,
        backend: &'static Backend,
        path: &Path,
        placement: &Placement,
        console: Console,
        interrupt: Interrupt,
    ) -> Result<Model, Failure> {
        let model = stage(&mut *console.progress(), "loading", Unit::Percent, |progress| {
            Model::load(backend, path, placement, progress, interrupt)
        });
        model.map_err(|error| match error {
            LlamaError::Interrupted => Failure::Interrupted,
            error @ LlamaError::Load { .. } => Failure::input(error),
            error => Failure::running(error),
        })
    }
}
