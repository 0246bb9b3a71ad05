//! Whether llama.cpp failed for want of memory, which it only logs.

use super::DeviceKind;
use super::backend::Backend;
use super::error::{Allocation, LlamaError, LogTail, MissingMemory};
use crate::sys::available_memory;

impl LlamaError {
    /// The error for a failed `allocation`, when the log says that memory was missing.
    pub(super) fn out_of_memory(allocation: Allocation, tail: &LogTail) -> Option<LlamaError> {
        let mut found = tail.0.iter().filter_map(|line| Refusal::read(line)).peekable();
        found.peek()?;
        // The first line with a number is the refusal itself; what follows tells of it once more.
        let mut all: Vec<Refusal> = found.collect();
        let at = all.iter().position(|refusal| refusal.bytes.is_some()).unwrap_or(0);
        let Refusal { device, bytes } = all.swap_remove(at);
        let device = device.or_else(|| all.into_iter().find_map(|refusal| refusal.device));
        let device = device.unwrap_or_else(|| "the processor".to_owned());
        Some(LlamaError::Memory(MissingMemory { allocation, free: free(&device), device, asked: bytes }))
    }
}

/// A line of the log in which a buffer was refused.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    device: Option<String>,
    bytes: Option<u64>,
}

impl Refusal {
    fn read(line: &str) -> Option<Refusal> {
        if let Some((_, rest)) = line.split_once("failed to allocate ") {
            // "DEVICE buffer of size N", "buffer of size N", "output buffer of size N MiB", "N bytes"
            let words: Vec<&str> = rest.split_whitespace().collect();
            let size = words.iter().rposition(|word| word.parse::<f64>().is_ok());
            let bytes = size.and_then(|at| {
                let number: f64 = words[at].trim_end_matches('.').parse().ok()?;
                let unit = match words.get(at + 1) {
                    Some(&"MiB" | &"MB") => f64::from(1 << 20),
                    _ => 1.0,
                };
                Some((number * unit) as u64)
            });
            let device = match words.as_slice() {
                [name, "buffer" | "buffer:", ..] if *name != "output" => Some((*name).to_owned()),
                _ => None,
            };
            return Some(Refusal { device, bytes });
        }
        if let Some((_, rest)) = line.split_once("unable to allocate ") {
            return Some(Refusal { device: rest.split_whitespace().next().map(str::to_owned), bytes: None });
        }
        let exceptions = ["bad_alloc", "OutOfDeviceMemory", "OutOfHostMemory"];
        exceptions.iter().any(|text| line.contains(text)).then_some(Refusal { device: None, bytes: None })
    }
}

/// What is free on a device, or in the processor's memory when there is no device of that name.
fn free(name: &str) -> Option<u64> {
    let devices = Backend::start().ok()?.devices();
    match devices.into_iter().find(|device| device.name == name) {
        Some(device) if device.kind != DeviceKind::Cpu => Some(device.memory_free),
        _ => available_memory(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_the_log_give_device_and_bytes() {
        let read = |line: &str| Refusal::read(line).map(|refusal| (refusal.device, refusal.bytes));
        let vulkan = Some("Vulkan0".to_owned());
        let line = "ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 1234567890";
        assert_eq!(read(line), Some((vulkan.clone(), Some(1_234_567_890))));
        let line = "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4096";
        assert_eq!(read(line), Some((None, Some(4096))));
        let line = "output_reserve: failed to allocate output buffer of size 2.00 MiB";
        assert_eq!(read(line), Some((None, Some(2 << 20))));
        let line = "llama_model_load: error loading model: unable to allocate Vulkan0 buffer";
        assert_eq!(read(line), Some((vulkan, None)));
        assert_eq!(read("vk::Device::allocateMemory: ErrorOutOfDeviceMemory"), Some((None, None)));
        assert_eq!(read("failed to load model"), None);
    }

    #[test]
    fn the_refusal_with_a_number_is_told() {
        let lines = [
            "alloc_tensor_range: failed to allocate CPU buffer of size 1000",
            "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        ];
        let tail = LogTail(lines.map(str::to_owned).to_vec());
        let error = LlamaError::out_of_memory(Allocation::Context { n_ctx: 64 }, &tail).unwrap();
        let LlamaError::Memory(missing) = &error else { panic!("{error}") };
        assert_eq!((missing.device.as_str(), missing.asked), ("CPU", Some(1000)));
        assert!(
            error.to_string().contains("a context of 64 tokens: 1000 bytes were asked of CPU"),
            "{error}"
        );
        let other = LogTail(vec!["missing tensor".to_owned()]);
        assert!(LlamaError::out_of_memory(Allocation::Context { n_ctx: 64 }, &other).is_none());
    }
}
