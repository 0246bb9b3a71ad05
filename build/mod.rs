//! The native build: source → tools → CMake → link → shim → bindings.

mod native;
mod source;
mod tools;

use std::env;
use std::path::PathBuf;

pub fn build() -> Result<(), String> {
    let vulkan = env::var_os("CARGO_FEATURE_VULKAN").is_some();
    let source = source::find()?;
    let tools = tools::check(vulkan)?;
    let options = native::Options::new(&source, vulkan, &tools);
    let built = native::build(&source, &options)?;
    native::link(&built, vulkan)?;
    compile_shim(&source);
    generate_bindings(&source)
}

fn include_folders(source: &source::Source) -> [PathBuf; 3] {
    [source.folder.join("include"), source.folder.join("ggml/include"), source.folder.join("src")]
}

/// Whether the device that fails on command is built, for the tests.
fn has_faults() -> bool {
    env::var_os("CARGO_FEATURE_FAULTS").is_some()
}

fn compile_shim(source: &source::Source) {
    for file in ["shim.cpp", "shim.h", "faulty.cpp", "faulty.h", "wrapper.h"] {
        println!("cargo:rerun-if-changed=native/{file}");
    }
    let mut build = cc::Build::new();
    if has_faults() {
        build.file("native/faulty.cpp").include(source.folder.join("ggml/src"));
    }
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .includes(include_folders(source))
        .file("native/shim.cpp")
        .compile("moeslice_shim");
}

fn generate_bindings(source: &source::Source) -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    let mut builder = bindgen::Builder::default()
        .header("native/wrapper.h")
        .allowlist_function("(llama|ggml|gguf|moeslice)_.*")
        .allowlist_type("(llama|ggml|gguf|moeslice)_.*")
        .allowlist_var("(LLAMA|GGML|GGUF)_.*")
        .derive_debug(false)
        .generate_comments(false)
        .layout_tests(false)
        .prepend_enum_name(false)
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("a version that bindgen knows"));
    if has_faults() {
        builder = builder.clang_arg("-DMOESLICE_FAULTS");
    }
    for folder in include_folders(source) {
        builder = builder.clang_arg(format!("-I{}", folder.display()));
    }
    let bindings =
        builder.generate().map_err(|e| format!("bindgen could not read llama.cpp's headers: {e}"))?;
    bindings.write_to_file(&out).map_err(|e| format!("cannot write {}: {e}", out.display()))
}
