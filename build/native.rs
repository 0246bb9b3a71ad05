//! CMake over llama.cpp: options, the shared build folder, and what to link.

use super::backends::{self, Backend};
use super::source::Source;
use super::tools::{self, Tools};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, io};

/// Every `-D` of the CMake run, in a fixed order.
#[derive(Hash)]
pub struct Options {
    defines: BTreeMap<String, String>,
    ninja: bool,
}

/// Variables that CMake reads from the environment itself; as `-D` they would mean something else.
const READ_BY_CMAKE: [&str; 4] = [
    "CMAKE_GENERATOR",
    "CMAKE_BUILD_PARALLEL_LEVEL",
    "CMAKE_EXPORT_COMPILE_COMMANDS",
    "CMAKE_INSTALL_PREFIX",
];

impl Options {
    pub fn new(source: &Source, wanted: &[&Backend], tools: &Tools) -> Self {
        let on_off = |on: bool| if on { "ON" } else { "OFF" }.to_owned();
        let mut defines: BTreeMap<String, String> = [
            ("BUILD_SHARED_LIBS", false),
            ("LLAMA_BUILD_APP", false),
            ("LLAMA_BUILD_COMMON", false),
            ("LLAMA_BUILD_EXAMPLES", false),
            ("LLAMA_BUILD_SERVER", false),
            ("LLAMA_BUILD_TESTS", false),
            ("LLAMA_BUILD_TOOLS", false),
            ("LLAMA_BUILD_UI", false),
            ("LLAMA_USE_PREBUILT_UI", false),
        ]
        .into_iter()
        .chain(backends::off_by_default())
        .chain(wanted.iter().flat_map(|backend| backend.defines.iter().copied()))
        .map(|(name, on)| (name.to_owned(), on_off(on)))
        .collect();
        if let Some(folder) = &tools.vulkan_include {
            defines.insert("Vulkan_INCLUDE_DIR".into(), folder.display().to_string());
        }
        if let Some(folder) = &tools.spirv_headers {
            defines.insert("SPIRV-Headers_DIR".into(), folder.display().to_string());
        }
        defines.extend(from_environment(source));
        Options { defines, ninja: tools.ninja }
    }
}

/// `GGML_*` and `CMAKE_*` variables. Many `GGML_*` variables are read by the finished library at run time
/// (`GGML_VK_VISIBLE_DEVICES`, …): only those that ggml's own CMake file names are build options.
fn from_environment(source: &Source) -> BTreeMap<String, String> {
    let cmake = fs::read_to_string(source.folder.join("ggml/CMakeLists.txt")).unwrap_or_default();
    let known: Vec<&str> = cmake
        .lines()
        .filter_map(|line| {
            line.trim_start().strip_prefix("option(").or_else(|| line.trim_start().strip_prefix("set("))
        })
        .filter_map(|rest| rest.split([' ', ')', '\t']).next())
        .filter(|name| name.starts_with("GGML_"))
        .collect();
    for name in known.iter().copied().chain([
        "CMAKE_PREFIX_PATH",
        "CMAKE_TOOLCHAIN_FILE",
        "CMAKE_C_COMPILER",
        "CMAKE_CXX_COMPILER",
    ]) {
        println!("cargo:rerun-if-env-changed={name}");
    }
    env::vars()
        .filter(|(name, _)| {
            known.contains(&name.as_str())
                || (name.starts_with("CMAKE_") && !READ_BY_CMAKE.contains(&name.as_str()))
        })
        .inspect(|(name, _)| println!("cargo:rerun-if-env-changed={name}"))
        .collect()
}

/// Builds (or finds built) llama.cpp itself; returns the folder of the build.
pub fn build(source: &Source, options: &Options) -> Result<PathBuf, String> {
    let mut hasher = std::hash::DefaultHasher::new();
    source.folder.hash(&mut hasher);
    options.hash(&mut hasher);
    once(hasher, source.mutable, |folder| configured(&source.folder, folder, options))
}

/// Builds (or finds built) the parts of llama.cpp's `common` that `native/CMakeLists.txt` lists.
pub fn build_common(source: &Source, options: &Options) -> Result<PathBuf, String> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let native = root.join("native");
    let mut hasher = std::hash::DefaultHasher::new();
    source.folder.hash(&mut hasher);
    for name in ["CMakeLists.txt", "fixed_clock.h"] {
        let path = native.join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?.hash(&mut hasher);
    }
    once(hasher, source.mutable, |folder| {
        let mut config = configured(&native, folder, &Options { defines: BTreeMap::new(), ..*options });
        config.define("LLAMA_SOURCE", &source.folder);
        // Rendering text is a small part of any run: what counts is how long the build takes.
        config.define("CMAKE_CXX_FLAGS_RELEASE", "-O1 -DNDEBUG");
        if tools::runs("ccache") {
            config.define("CMAKE_CXX_COMPILER_LAUNCHER", "ccache");
        }
        config
    })
}

fn configured(source: &Path, folder: &Path, options: &Options) -> cmake::Config {
    let mut config = cmake::Config::new(source);
    config.profile("Release").out_dir(folder);
    if options.ninja && env::var_os("CMAKE_GENERATOR").is_none() {
        config.generator("Ninja");
    }
    for (name, value) in &options.defines {
        config.define(name, value);
    }
    config
}

/// Runs CMake in a folder that all cargo profiles share, named by what `hasher` has seen and the compilers; once for
/// sources that never change.
fn once(
    mut hasher: std::hash::DefaultHasher,
    mutable: bool,
    config: impl FnOnce(&Path) -> cmake::Config,
) -> Result<PathBuf, String> {
    for name in ["CC", "CXX", "CFLAGS", "CXXFLAGS", "TARGET"] {
        env::var_os(name).hash(&mut hasher);
    }
    let native = shared_target_folder().join("native");
    let folder = native.join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;

    // Two profiles may be built at the same time; one builds, the other waits for it.
    let lock_path = folder.join("lock");
    let lock = File::create(&lock_path).map_err(|e| format!("cannot make {}: {e}", lock_path.display()))?;
    lock.lock().map_err(|e| format!("cannot lock {}: {e}", lock_path.display()))?;
    let stamp = folder.join("built");
    if mutable || !stamp.exists() {
        config(&folder).build();
        fs::write(&stamp, "").map_err(|e| format!("cannot write {}: {e}", stamp.display()))?;
    }
    Ok(folder)
}

/// Cargo's target folder, which all profiles share: it is marked by a `CACHEDIR.TAG`.
fn shared_target_folder() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    out.ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .map_or_else(|| out.clone(), Path::to_owned)
}

/// Tells rustc what to link. Archives stay outside the rlib (`-bundle`): they are large, and every profile would copy them.
pub fn link(built: &Path, common: &Path, wanted: &[&Backend]) -> Result<(), String> {
    let folder_of = |built: &Path, archive: &str| {
        let mut folders = ["lib", "lib64"].iter().map(|name| built.join(name));
        folders.find(|folder| folder.join(archive).is_file()).ok_or_else(|| {
            format!("llama.cpp was built, yet {} holds no {archive}", built.join("lib").display())
        })
    };
    let lib = folder_of(built, "libllama.a")?;
    println!("cargo:rustc-link-search=native={}", folder_of(common, "libmoeslice-common.a")?.display());
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=static:-bundle=moeslice-common");
    println!("cargo:rustc-link-lib=static:-bundle=llama");
    println!("cargo:rustc-link-lib=static:-bundle=ggml");
    // ggml's registry refers to the backends, the backends to ggml-base: this is the order that linkers want.
    for backend in backends(&lib).map_err(|e| format!("cannot list {}: {e}", lib.display()))? {
        println!("cargo:rustc-link-lib=static:-bundle={backend}");
    }
    println!("cargo:rustc-link-lib=static:-bundle=ggml-base");
    for backend in wanted {
        for folder in backend.library_folders() {
            println!("cargo:rustc-link-search=native={}", folder.display());
        }
        for name in backend.libraries {
            println!("cargo:rustc-link-lib={name}");
        }
        for name in backend.frameworks {
            println!("cargo:rustc-link-lib=framework={name}");
        }
    }
    for name in openmp_libraries(built) {
        println!("cargo:rustc-link-lib={name}");
    }
    println!("cargo:rustc-link-lib={}", if cfg!(target_os = "macos") { "c++" } else { "stdc++" });
    Ok(())
}

fn backends(lib: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(lib)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        let name = file.strip_prefix("lib").and_then(|rest| rest.strip_suffix(".a"));
        names
            .extend(name.filter(|name| name.starts_with("ggml-") && *name != "ggml-base").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// The OpenMP runtime that CMake chose, which depends on the compiler (gomp, omp, iomp5).
fn openmp_libraries(built: &Path) -> Vec<String> {
    let cache = fs::read_to_string(built.join("build/CMakeCache.txt")).unwrap_or_default();
    cache
        .lines()
        .find_map(|line| line.strip_prefix("OpenMP_CXX_LIB_NAMES:STRING="))
        .map(|names| {
            names
                .split(';')
                .filter(|name| !name.is_empty() && *name != "NOTFOUND")
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default()
}
