//! The fuzzing seeds in an ordinary test run, and what becomes of each.

use std::fs;
use std::path::Path;

use moeslice::fuzzing;

#[test]
fn gguf_seeds_are_accepted_or_refused_as_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/gguf_header");
    let accepted = ["every_value_type", "version_2_align_64", "quantised", "shard"];
    let mut seen = 0;
    for seed in fs::read_dir(folder).expect("the seeds") {
        let path = seed.expect("a seed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let result = fuzzing::gguf::header(&fs::read(&path).expect("read"));
        assert_eq!(result.is_ok(), accepted.contains(&name), "{name}: {result:?}");
        seen += usize::from(result.is_ok());
    }
    assert_eq!(seen, accepted.len());
}
