//! Any bytes as a GGUF file: no panic, and an accepted header keeps its promises.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run gguf_header fuzz/corpus/gguf_header fuzz/seeds/gguf_header`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = moeslice::fuzzing::gguf::header(bytes);
});
