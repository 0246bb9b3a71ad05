//! The GGUF file format, in safe Rust.
