use super::*;
use crate::moe::CountLimit;

#[test]
fn every_form_is_read_and_printed() {
    for (text, wanted) in [
        ("192", KeepTarget::Count(192)),
        ("0", KeepTarget::Count(0)),
        ("75%", KeepTarget::Percent(75.0)),
        ("12.5%", KeepTarget::Percent(12.5)),
        ("100%", KeepTarget::Percent(100.0)),
        ("coverage:0.98", KeepTarget::Coverage { share: 0.98, each: false }),
        ("coverage:0.98@each", KeepTarget::Coverage { share: 0.98, each: true }),
        ("coverage:1", KeepTarget::Coverage { share: 1.0, each: false }),
        ("size:14GiB", KeepTarget::Size(14 << 30)),
        ("size:3B", KeepTarget::Size(3)),
        ("size:5MB", KeepTarget::Size(5_000_000)),
        ("size:18446744073709551615B", KeepTarget::Size(u64::MAX)),
    ] {
        let keep: KeepTarget = text.parse().unwrap();
        assert_eq!(keep, wanted, "{text}");
        assert_eq!(keep.to_string(), text);
    }
}

#[test]
fn sizes_are_exact() {
    for (text, bytes) in [
        ("size:1000", 1000),
        ("size:14.5GiB", 15_569_256_448),
        ("size:13.1GB", 13_100_000_000),
        ("size:0.1GiB", 107_374_182),
        (".5 MiB", 0),
        ("size:.5 MiB", 524_288),
        ("size:2.kb", 2000),
        ("size:1gib", 1 << 30),
        ("size:3G", 3_000_000_000),
        ("size:3M", 3_000_000),
        ("size:0.00000000000000000000001TiB", 0),
        ("size:1.99999999999999999999999999999999999999999999TiB", (2 << 40) - 1),
    ] {
        let keep = text.parse::<KeepTarget>();
        match bytes {
            0 => assert!(keep.is_err(), "{text}"),
            _ => assert_eq!(keep, Ok(KeepTarget::Size(bytes)), "{text}"),
        }
    }
}

#[test]
fn unknown_form_is_refused_with_the_known_forms() {
    for (text, why) in [
        ("", "none of what"),
        ("+5", "none of what"),
        ("-1", "none of what"),
        ("1.5", "none of what"),
        ("4294967296", "none of what"),
        ("all", "none of what"),
        ("0%", "above 0"),
        ("101%", "at most 100"),
        ("nan%", "above 0"),
        ("%", "percentage is not a number"),
        ("coverage:", "not a number"),
        ("coverage:98%", "not a number"),
        ("coverage:0", "above 0"),
        ("coverage:98", "at most 1"),
        ("coverage:NaN", "above 0"),
        ("coverage:0.9@all", "only @each"),
        ("size:", "not a number"),
        ("size:GiB", "not a number"),
        ("size:1.2.3GiB", "not a number"),
        ("size:-1GiB", "unit"),
        ("size:1PiB", "unit"),
        ("size:0", "above 0"),
        ("size:16777216TiB", "too large"),
        ("size:3K", "M and G as llama.cpp has them"),
        ("size:99999999999999999999", "too large"),
    ] {
        let message = text.parse::<KeepTarget>().unwrap_err().to_string();
        assert!(message.contains(why) && message.contains("coverage:0.98@each"), "{text}: {message}");
    }
}

#[test]
fn bare_share_is_answered_with_its_two_possible_forms() {
    for (text, percent) in [("0.75", "75%"), (".5", "50%"), ("0.07", "7%"), ("1.0", "100%")] {
        let message = text.parse::<KeepTarget>().unwrap_err().to_string();
        let other = format!("coverage:{text}");
        assert!(message.contains(&format!(" {percent} ")) && message.contains(&other), "{message}");
    }
}

#[test]
fn decimal_comma_is_named_with_the_mended_text() {
    for (text, meant) in [
        ("12,5%", "12.5%"),
        ("0,75", "0.75"),
        ("coverage:0,98@each", "coverage:0.98@each"),
        ("size:14,5GiB", "size:14.5GiB"),
    ] {
        let message = text.parse::<KeepTarget>().unwrap_err().to_string();
        assert!(message.contains("comma") && message.contains(meant), "{message}");
    }
    assert!(!"1,2,3".parse::<KeepTarget>().unwrap_err().to_string().contains("comma"));
}

#[test]
fn percentage_that_ends_far_above_is_told() {
    let groups = grouped(experts("deepseek2", 2, &[(0, 64)]), 4, 2);
    let told = |text: &str| {
        let keep: KeepTarget = text.parse().unwrap();
        let k = keep.count(&groups).unwrap().unwrap();
        (k, keep.rounding(&groups, k))
    };
    let (k, text) = told("1%");
    assert_eq!(k, 8);
    assert!(text.unwrap().starts_with("1% would be 1 of 64 experts: 8 stay (12.5 %)"));
    assert_eq!(told("75%"), (48, None));
    assert_eq!(told("48"), (48, None));
}

#[test]
fn percent_rounds_up_to_a_possible_count() {
    let plain = experts("qwen3moe", 2, &[(0, 10)]);
    let count = |experts: &Experts, percent| KeepTarget::Percent(percent).count(experts).unwrap();
    for (percent, k) in [
        (70.0, 7),
        (70.000001, 8),
        (61.0, 7),
        (60.0, 6),
        (1.0, 2), // a token goes to two experts
        (100.0, 10),
        (99.9, 10),
    ] {
        assert_eq!(count(&plain, percent), Some(k), "{percent} %");
    }
    // 4 groups: 4 and below are impossible, so are all that 4 does not divide.
    let groups = grouped(experts("deepseek2", 2, &[(0, 32)]), 4, 2);
    assert_eq!(count(&groups, 28.2), Some(12));
    assert_eq!(count(&groups, 1.0), Some(8));
    assert_eq!(count(&groups, 90.7), Some(32));
}

#[test]
fn decimal_percentages_never_round_up_by_float_error() {
    // tenths of a percent that give a whole number of experts
    for n in [7u32, 60, 96, 128, 160, 224, 256, 384, 512, 1000, 1024] {
        let model = experts("qwen3moe", 1, &[(0, n)]);
        for tenths in 1..=1000u32 {
            let keep: KeepTarget = format!("{}.{}%", tenths / 10, tenths % 10).parse().unwrap();
            let wanted = (n * tenths).div_ceil(1000);
            assert_eq!(keep.count(&model).unwrap(), Some(wanted), "{keep} of {n}");
        }
    }
}

#[test]
fn count_target_is_checked_against_the_model() {
    let model = experts("qwen3moe", 4, &[(0, 32)]);
    let limit = |k| match KeepTarget::Count(k).count(&model).unwrap_err() {
        PlanError::Keep(error) => error.limit,
        other => panic!("{other}"),
    };
    assert_eq!(limit(0), CountLimit::Zero);
    assert_eq!(limit(3), CountLimit::BelowUsed { used: 4 });
    assert_eq!(limit(33), CountLimit::TooMany);
    assert_eq!(KeepTarget::Count(4).count(&model).unwrap(), Some(4));
    assert_eq!(KeepTarget::Count(32).count(&model).unwrap(), Some(32));
    assert_eq!("coverage:0.5".parse::<KeepTarget>().unwrap().count(&model).unwrap(), None);
    assert_eq!(KeepTarget::Size(1).count(&model).unwrap(), None);
}

#[test]
fn model_that_cannot_be_cut_refuses_every_target_but_all() {
    let model = experts("grovemoe", 2, &[(0, 8)]);
    for keep in ["7", "75%", "coverage:0.9", "size:1GiB"] {
        let error = keep.parse::<KeepTarget>().unwrap().count(&model).unwrap_err();
        assert!(error.to_string().contains("chunk"), "{keep}: {error}");
    }
    for keep in ["8", "100%"] {
        assert_eq!(keep.parse::<KeepTarget>().unwrap().count(&model).unwrap(), Some(8));
    }
}
