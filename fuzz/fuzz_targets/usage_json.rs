//! Any bytes as a usage file: no panic, and an accepted usage can be written, merged, planned by and reported.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run usage_json fuzz/corpus/usage_json fuzz/seeds/usage_json -- -dict=fuzz/json.dict`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = moeslice::fuzzing::report::usage(bytes);
});
