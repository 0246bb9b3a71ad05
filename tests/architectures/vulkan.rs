//! The same proofs on llvmpipe, a Vulkan device without a GPU.

use crate::proof::{self, Subject, Tolerance};
use crate::support::isolated;
use crate::support::recipe::Recipe;
use moeslice::llama::Backend;

/// Runs in a child process: which devices there are is settled when llama.cpp starts.
pub fn child(architecture: &str) {
    let devices = Backend::start().expect("llama.cpp").devices();
    let gpu = devices.into_iter().find(|device| device.name.starts_with("Vulkan")).expect("a Vulkan device");
    println!("on {}: {}", gpu.name, gpu.description);
    let subject = Subject::new(crate::tiny(&Recipe::of(architecture)), vec![gpu]);
    proof::all(&subject, Tolerance { same: 1e-5, top1: true });
}

#[test]
fn three_architectures_on_vulkan_count_as_on_cpu() {
    if std::env::var_os("MOESLICE_SLOW_TESTS").is_none() {
        eprintln!("skipped: compiling shaders for llvmpipe takes minutes; MOESLICE_SLOW_TESTS=1 runs it");
        return;
    }
    for architecture in ["qwen3moe", "gpt-oss", "deepseek2"] {
        let task = format!("vulkan {architecture}");
        let out = isolated::run("child", &task, &[("GGML_VK_VISIBLE_DEVICES", "0")]);
        println!("{}", out.unwrap_or_else(|e| panic!("{e}")));
    }
}
