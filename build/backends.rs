//! llama.cpp's backends beside the processor: which feature turns each on, what its build needs, what is linked.

use super::tools::runs;
use std::env;
use std::path::PathBuf;

/// A backend of ggml that a feature of this crate turns on.
pub struct Backend {
    /// The variable by which cargo tells of the feature.
    feature: &'static str,
    /// Options of llama.cpp's CMake files, in an `-D` each.
    pub defines: &'static [(&'static str, bool)],
    /// Programs without which its build cannot begin, and where they come from.
    programs: &'static [(&'static str, &'static str)],
    /// Whether it exists on macOS alone.
    macos: bool,
    /// Shared libraries that its archive refers to.
    pub libraries: &'static [&'static str],
    pub frameworks: &'static [&'static str],
    /// Variables that name the folder of its toolkit, and the usual folders.
    toolkit: (&'static [&'static str], &'static [&'static str]),
}

const ALL: [Backend; 5] = [
    Backend {
        feature: "CARGO_FEATURE_VULKAN",
        defines: &[("GGML_VULKAN", true)],
        programs: &[("glslc", "Debian/Ubuntu: glslc; Fedora: glslc; Arch: shaderc")],
        macos: false,
        libraries: &["vulkan"],
        frameworks: &[],
        toolkit: (&[], &[]),
    },
    Backend {
        feature: "CARGO_FEATURE_CUDA",
        // Several GPUs of one machine work without NCCL as well, and it would be one library more to find.
        defines: &[("GGML_CUDA", true), ("GGML_CUDA_NCCL", false)],
        programs: &[("nvcc", "NVIDIA's CUDA toolkit, with its folder bin in PATH")],
        macos: false,
        libraries: &["cudart", "cublas", "cublasLt", "cuda"],
        frameworks: &[],
        toolkit: (&["CUDA_PATH", "CUDA_HOME"], &["/usr/local/cuda", "/opt/cuda"]),
    },
    Backend {
        feature: "CARGO_FEATURE_HIP",
        defines: &[("GGML_HIP", true), ("GGML_HIP_RCCL", false)],
        programs: &[("hipconfig", "AMD's ROCm, with its folder bin in PATH")],
        macos: false,
        libraries: &["amdhip64", "hipblas", "rocblas"],
        frameworks: &[],
        toolkit: (&["ROCM_PATH"], &["/opt/rocm", "/usr"]),
    },
    Backend {
        feature: "CARGO_FEATURE_METAL",
        defines: &[("GGML_METAL", true), ("GGML_METAL_EMBED_LIBRARY", true)],
        programs: &[],
        macos: true,
        libraries: &[],
        frameworks: &["Foundation", "Metal", "MetalKit"],
        toolkit: (&[], &[]),
    },
    Backend {
        feature: "CARGO_FEATURE_RPC",
        // Its transport over RDMA is built where a library for it lies about, and would be one library more to link.
        defines: &[("GGML_RPC", true), ("GGML_RPC_RDMA", false)],
        programs: &[],
        macos: false,
        libraries: &[],
        frameworks: &[],
        toolkit: (&[], &[]),
    },
];

impl Backend {
    /// The backends whose features are on.
    pub fn wanted() -> Vec<&'static Backend> {
        ALL.iter().filter(|backend| env::var_os(backend.feature).is_some()).collect()
    }

    /// What this machine lacks for it, one line each.
    pub fn missing(&self) -> Vec<String> {
        let feature = self.feature.trim_start_matches("CARGO_FEATURE_").to_lowercase();
        let macos = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos");
        let system =
            (self.macos && !macos).then(|| format!("macOS: the feature {feature} exists there alone"));
        let programs = self.programs.iter().filter(|(program, _)| !runs(program));
        system.into_iter().chain(programs.map(|(program, from)| format!("{program:<21} ({from})"))).collect()
    }

    /// The folders of its toolkit in which libraries may lie.
    pub fn library_folders(&self) -> Vec<PathBuf> {
        let (variables, usual) = self.toolkit;
        for name in variables {
            println!("cargo:rerun-if-env-changed={name}");
        }
        let named = variables.iter().filter_map(env::var_os).map(PathBuf::from);
        let roots = named.chain(usual.iter().map(PathBuf::from));
        // The stub of CUDA's driver serves where the machine that builds has no GPU.
        roots
            .flat_map(|root| ["lib64", "lib", "lib64/stubs"].map(|name| root.join(name)))
            .filter(|folder| folder.is_dir())
            .collect()
    }
}

/// What is off unless its feature is on: macOS turns Metal and BLAS on by itself, and then wants more to be linked.
pub fn off_by_default() -> Vec<(&'static str, bool)> {
    let macos = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos");
    let mut off = vec![("GGML_VULKAN", false)];
    if macos {
        off.extend([("GGML_ACCELERATE", false), ("GGML_BLAS", false), ("GGML_METAL", false)]);
    }
    off
}
