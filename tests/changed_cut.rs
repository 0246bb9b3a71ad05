//! A true cut with any one byte changed, in an ordinary test run.
#![allow(missing_docs)]

use moeslice::fuzzing::verify::{changed_cut, every_byte};

#[test]
#[ignore = "thousands of files are written"]
fn a_cut_with_any_byte_changed_is_never_true() {
    // The lowest bit, which turns one text or number into the next.
    let noticed = every_byte(1, 1).expect("the temporary folder takes files");
    assert!(noticed > 4000, "{noticed}");
}

#[test]
fn a_cut_with_some_byte_changed_is_never_true() {
    let noticed = every_byte(1, 41).expect("the temporary folder takes files");
    assert!(noticed > 100, "{noticed}");
}

#[test]
fn seeds_change_a_byte() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/verify");
    for seed in std::fs::read_dir(folder).expect("the seeds") {
        let path = seed.expect("a seed").path();
        let noticed =
            changed_cut(&std::fs::read(&path).expect("read")).expect("the temporary folder takes files");
        assert!(noticed, "{}", path.display());
    }
}
