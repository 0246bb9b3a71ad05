//! What must be on the machine before the native build starts, told in one message when it is not.

use super::backends::Backend;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The first Vulkan headers with `vk::LayerSettingsCreateInfoEXT`, which ggml-vulkan uses.
const WANTED_VULKAN: (u32, u32, u32) = (1, 3, 272);

/// What the checks found.
#[derive(Default)]
pub struct Tools {
    pub ninja: bool,
    /// Include folder with `vulkan/vulkan.h`, when it is not the system's.
    pub vulkan_include: Option<PathBuf>,
    /// Folder of `SPIRV-HeadersConfig.cmake`, when it is not the system's.
    pub spirv_headers: Option<PathBuf>,
}

pub fn check(wanted: &[&Backend]) -> Result<Tools, String> {
    for name in ["VULKAN_SDK", "Vulkan_INCLUDE_DIR", "XDG_CACHE_HOME", "LIBCLANG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let mut missing = Vec::new();
    let mut tools = Tools { ninja: runs("ninja"), ..Tools::default() };
    if !runs("cmake") {
        missing.push("cmake                 (Debian/Ubuntu: cmake; Fedora, Arch: cmake)".to_owned());
    }
    if let Err(e) = cc::Build::new().cpp(true).try_get_compiler() {
        missing.push(format!("a C++17 compiler      (Debian/Ubuntu: build-essential): {e}"));
    }
    if !libclang_loads() {
        missing.push(
            "clang with libclang   (Debian/Ubuntu: clang libclang-dev; Fedora: clang-devel; Arch: clang)"
                .to_owned(),
        );
    }
    let vulkan = env::var_os("CARGO_FEATURE_VULKAN").is_some();
    missing.extend(wanted.iter().flat_map(|backend| backend.missing()));
    if vulkan {
        find_headers(&mut tools, &mut missing);
    }
    if missing.is_empty() {
        return Ok(tools);
    }
    let mut message = String::from("moeslice cannot build llama.cpp: missing on this machine\n");
    for line in &missing {
        message.push_str(&format!("  - {line}\n"));
    }
    message.push_str("On Debian and Ubuntu, scripts/setup installs what is packaged there.\n");
    if !wanted.is_empty() {
        message.push_str(
            "Without a GPU, for the CPU alone: cargo build --no-default-features --features cli,llama\n",
        );
    }
    message.push_str(
        "Without llama.cpp, for the offline tools alone: cargo build --no-default-features --features cli",
    );
    Err(message)
}

/// Whether `program` can be started.
pub fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// bindgen panics when libclang is not there; asked first, and quietly, it becomes one line of the message.
fn libclang_loads() -> bool {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let loads = std::panic::catch_unwind(|| bindgen::clang_version().parsed.is_some()).unwrap_or(false);
    std::panic::set_hook(hook);
    loads
}

fn find_headers(tools: &mut Tools, missing: &mut Vec<String>) {
    let system = PathBuf::from("/usr/include");
    let fetched = cache_folder().map(|cache| cache.join("moeslice/vulkan-headers/usr"));
    let mut folders = Vec::new();
    folders.extend(env::var_os("Vulkan_INCLUDE_DIR").map(PathBuf::from));
    folders.extend(env::var_os("VULKAN_SDK").map(|sdk| PathBuf::from(sdk).join("include")));
    folders.extend([system.clone(), PathBuf::from("/usr/local/include")]);
    folders.extend(fetched.as_ref().map(|usr| usr.join("include")));

    let mut oldest = None;
    let found = folders.into_iter().find(|folder| match vulkan_version(folder) {
        Some(version) => {
            oldest = Some(version);
            version >= WANTED_VULKAN
        }
        None => false,
    });
    let (major, minor, patch) = WANTED_VULKAN;
    match (found, oldest) {
        (Some(folder), _) if folder == system => {}
        (Some(folder), _) => tools.vulkan_include = Some(folder),
        (None, Some((a, b, c))) => missing.push(format!(
            "newer Vulkan headers  (found {a}.{b}.{c}, wanted {major}.{minor}.{patch} or newer)"
        )),
        (None, None) => missing.push(format!(
            "Vulkan headers {major}.{minor}.{patch} or newer (Debian/Ubuntu: libvulkan-dev; Fedora: vulkan-headers vulkan-loader-devel; Arch: vulkan-headers vulkan-icd-loader)"
        )),
    }
    let config = "share/cmake/SPIRV-Headers";
    let has_config = |usr: &Path| usr.join(config).join("SPIRV-HeadersConfig.cmake").is_file();
    if let Some(usr) = fetched.filter(|usr| tools.vulkan_include.is_some() && has_config(usr)) {
        tools.spirv_headers = Some(usr.join(config));
    } else if !["/usr", "/usr/local"].iter().any(|usr| has_config(Path::new(usr)))
        && env::var_os("VULKAN_SDK").is_none()
    {
        missing.push("SPIR-V headers        (Debian/Ubuntu: spirv-headers; Fedora: spirv-headers-devel; Arch: spirv-headers)".to_owned());
    }
}

fn cache_folder() -> Option<PathBuf> {
    env::var_os("XDG_CACHE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
}

/// The version in `vulkan/vulkan_core.h`: `VK_HEADER_VERSION_COMPLETE` gives major and minor, `VK_HEADER_VERSION` the patch.
fn vulkan_version(include: &Path) -> Option<(u32, u32, u32)> {
    let text = std::fs::read_to_string(include.join("vulkan/vulkan_core.h")).ok()?;
    let patch =
        text.lines().find_map(|line| line.strip_prefix("#define VK_HEADER_VERSION ")?.trim().parse().ok())?;
    let complete = text
        .lines()
        .find_map(|line| line.strip_prefix("#define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION("))?;
    let mut numbers = complete.split(',').skip(1).map(|part| part.trim().parse().ok());
    Some((numbers.next()??, numbers.next()??, patch))
}
