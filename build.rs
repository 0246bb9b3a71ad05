//! Builds llama.cpp and the C++ shim, and generates the bindings, when the feature `llama` is on.
//!
//! The native part is built once into `target/native/<key>` and shared by all cargo profiles; the key covers the
//! source and every option, so a change of either gets a folder of its own.

#[cfg(feature = "llama")]
#[path = "build/mod.rs"]
mod llama;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    #[cfg(feature = "llama")]
    if let Err(message) = llama::build() {
        eprintln!("\n{message}\n");
        std::process::exit(1);
    }
}
