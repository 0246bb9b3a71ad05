//! Usage files, plans and traces that were damaged.

use moeslice::fuzzing;
use proptest::prelude::*;

use crate::seeds::seeds;

/// What a number or another byte of a file becomes.
#[derive(Clone, Debug)]
enum Change {
    Byte(u8),
    Number(&'static str),
    End,
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = [
        "0",
        "1",
        "2",
        "7",
        "8",
        "-1",
        "-0.0",
        "0.5",
        "1e-320",
        "1e308",
        "1e400",
        "4294967295",
        "4294967296",
        "9223372036854775808",
        "18446744073709551615",
        "null",
        "[]",
        "{}",
        "\"0\"",
    ];
    prop_oneof![
        2 => proptest::sample::select(br#"0123456789,:[]{}"\ae-."#.to_vec()).prop_map(Change::Byte),
        4 => proptest::sample::select(numbers.to_vec()).prop_map(Change::Number),
        1 => any::<u8>().prop_map(Change::Byte),
        1 => Just(Change::End),
    ]
}

/// Makes a change at a place of the text, given as its share.
fn apply(text: &mut Vec<u8>, place: f64, change: &Change) {
    if text.is_empty() {
        return;
    }
    let at = (place * text.len() as f64) as usize;
    match change {
        Change::Byte(byte) => text[at] = *byte,
        Change::End => text.truncate(at),
        Change::Number(number) => {
            let is_digit = |at: &usize| text[*at].is_ascii_digit();
            let Some(start) = (at..text.len()).find(is_digit) else { return };
            let end = (start..text.len()).find(|at| !is_digit(at)).unwrap_or(text.len());
            text.splice(start..end, number.bytes());
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<(f64, Change)>> {
    proptest::collection::vec((0.0..1.0_f64, change()), 0..4)
}

fn damaged(target: &str, seed: usize, changes: &[(f64, Change)]) -> Vec<u8> {
    let mut seeds = seeds(target);
    let index = seed % seeds.len();
    let mut text = seeds.swap_remove(index).1;
    changes.iter().for_each(|(place, change)| apply(&mut text, *place, change));
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_usage_is_refused_or_reported_without_panic(seed: usize, changes in changes()) {
        let _ = fuzzing::report::usage(&damaged("usage_json", seed, &changes));
    }

    #[test]
    fn damaged_plan_is_refused_or_fits_its_model(seed: usize, changes in changes()) {
        let _ = fuzzing::plan::plan(&damaged("plan_json", seed, &changes));
    }

    #[test]
    fn damaged_trace_is_refused_or_replayed(seed: usize, changes in changes()) {
        let _ = fuzzing::trace::trace(&damaged("trace", seed, &changes));
    }
}
