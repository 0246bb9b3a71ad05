//! A true cut with one byte changed: never called a true one.
//!
//! `RUSTC_BOOTSTRAP=1 TMPDIR=/dev/shm cargo fuzz run verify fuzz/corpus/verify fuzz/seeds/verify`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    moeslice::fuzzing::verify::changed_cut(bytes).expect("the temporary folder takes files");
});
