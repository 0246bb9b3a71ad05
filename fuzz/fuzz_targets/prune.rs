//! Any bytes as a model that is cut: no panic, and a cut that is made is a true one.
//!
//! `RUSTC_BOOTSTRAP=1 TMPDIR=/dev/shm cargo fuzz run prune fuzz/corpus/prune fuzz/seeds/prune`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    moeslice::fuzzing::prune::cut(bytes).expect("the temporary folder takes files");
});
