//! The native build: source → tools → CMake → link → shim → bindings.

mod backends;
mod native;
mod source;
mod tools;

use std::env;
use std::path::PathBuf;

pub fn build() -> Result<(), String> {
    let wanted = backends::Backend::wanted();
    let source = source::find()?;
    let tools = tools::check(&wanted)?;
    let options = native::Options::new(&source, &wanted, &tools);
    let built = native::build(&source, &options)?;
    let common = native::build_common(&source, &options)?;
    native::link(&built, &common, &wanted)?;
    compile_shim(&source);
    generate_bindings(&source)
}

fn include_folders(source: &source::Source) -> [PathBuf; 5] {
    ["include", "ggml/include", "src", "common", "vendor"].map(|name| source.folder.join(name))
}

/// Whether the device that fails on command is built, for the tests.
fn has_faults() -> bool {
    env::var_os("CARGO_FEATURE_FAULTS").is_some()
}

fn compile_shim(source: &source::Source) {
    // One file a topic.
    let files = ["native/shim.cpp", "native/chat_shim.cpp"];
    for file in files.iter().chain(&[
        "native/faulty.cpp",
        "native/faulty.h",
        "native/shim.h",
        "native/chat_shim.h",
        "native/guarded.h",
        "native/fixed_clock.h",
        "native/wrapper.h",
    ]) {
        println!("cargo:rerun-if-changed={file}");
    }
    let mut shim = cc::Build::new();
    shim.cpp(true).std("c++17").opt_level(2).flag("-include").flag("native/fixed_clock.h").files(files);
    if has_faults() {
        shim.file("native/faulty.cpp").include(source.folder.join("ggml/src"));
    }
    // Warnings about llama.cpp's headers are not ours.
    for folder in include_folders(source) {
        shim.flag("-isystem").flag(folder);
    }
    shim.compile("moeslice_shim");
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
