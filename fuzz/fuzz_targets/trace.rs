//! Any bytes as a trace: no panic, and an accepted trace can be written, read back and replayed.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run trace fuzz/corpus/trace fuzz/seeds/trace`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = moeslice::fuzzing::trace::trace(bytes);
});
