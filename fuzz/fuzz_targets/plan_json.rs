//! Any bytes as a plan: no panic, and a plan that is accepted for a model keeps what that model can keep.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run plan_json fuzz/corpus/plan_json fuzz/seeds/plan_json -- -dict=fuzz/json.dict`

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = moeslice::fuzzing::plan::plan(bytes);
});
