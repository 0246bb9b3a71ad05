//! The seeds of the fuzz targets, and what becomes of each.

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use moeslice::fuzzing;

/// The seeds of a fuzz target, by name.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(folder)
        .expect("the seeds")
        .map(|seed| {
            let seed = seed.expect("a seed");
            (seed.file_name().into_string().expect("a name"), fs::read(seed.path()).expect("read"))
        })
        .collect();
    seeds.sort();
    seeds
}

/// Runs `harness` on the seeds of a target: those of `refused`, all of which are there, give an error, and the others
/// what is returned.
#[track_caller]
fn check_seeds<T: Debug, E: Debug>(
    target: &str,
    refused: &[&str],
    harness: impl Fn(&[u8]) -> Result<T, E>,
) -> Vec<(String, T)> {
    let seeds = seeds(target);
    for name in refused {
        assert!(seeds.iter().any(|(seed, _)| seed == name), "{target} has no seed {name}");
    }
    let mut accepted = Vec::new();
    for (name, bytes) in seeds {
        let result = harness(&bytes);
        assert_eq!(result.is_err(), refused.contains(&name.as_str()), "{name}: {result:?}");
        accepted.extend(result.ok().map(|value| (name, value)));
    }
    assert!(!accepted.is_empty(), "{target} has no seed that is accepted");
    accepted
}

#[test]
fn gguf_seeds_are_accepted_or_refused_as_named() {
    let refused = ["big_endian", "html", "huge_counts", "joined", "lfs", "truncated"];
    check_seeds("gguf_header", &refused, fuzzing::gguf::header);
}

#[test]
fn usage_seeds_are_accepted_or_refused_as_named() {
    let refused = ["another_version", "edited", "truncated", "unknown_field"];
    check_seeds("usage_json", &refused, fuzzing::report::usage);
}

#[test]
fn plan_seeds_are_accepted_or_refused_as_named() {
    let fit_nothing = ["another_model", "edited", "twice", "uneven_groups"];
    for (name, (_, fits)) in check_seeds("plan_json", &["another_version", "key_twice"], fuzzing::plan::plan)
    {
        assert_ne!(fits, fit_nothing.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn trace_seeds_are_accepted_or_refused_as_named() {
    let accepted =
        check_seeds("trace", &["layers.jsonl", "no_number.csv", "twice.jsonl"], fuzzing::trace::trace);
    for (name, tokens) in accepted {
        let expected = match name.as_str() {
            "cut_off.arrow" => 0,
            "text.arrow" => 11,
            "values.jsonl" => 2,
            _ => 3,
        };
        assert_eq!(tokens, expected, "{name}");
    }
}

#[test]
fn prune_seeds_can_be_cut() {
    for (name, is_cut) in check_seeds("prune", &[], fuzzing::prune::cut) {
        assert!(is_cut, "{name}");
    }
}
