use super::*;
use crate::moe::{Experts, Groups, test_experts};
use crate::plan::{Pins, Planner};
use crate::score::Blend;
use crate::usage::test_usage;

/// Two layers of four experts, two used; the corpora want opposite experts in layer 1. Expert 2 of layer 3 is dead.
fn usage() -> Usage {
    test_usage::usage(
        2,
        &[("dev", 10), ("pm", 4)],
        &[
            (1, &[(&[10, 6, 3, 1], None), (&[1, 1, 2, 4], None)]),
            (3, &[(&[9, 9, 0, 2], None), (&[4, 3, 0, 1], None)]),
        ],
    )
}

fn report() -> UsageReport {
    UsageReport::new(&usage()).unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

#[test]
fn coverage_steps_are_eighths_then_sixteenths_from_used_count() {
    assert_eq!(steps(32, 4), [4, 8, 12, 16, 18, 20, 22, 24, 26, 28, 30, 32]);
    assert_eq!(steps(256, 8), [32, 64, 96, 128, 144, 160, 176, 192, 208, 224, 240, 256]);
    assert_eq!(steps(60, 10), [15, 23, 30, 34, 38, 42, 45, 49, 53, 57, 60]);
    assert_eq!(steps(4, 2), [2, 3, 4]);
    assert_eq!(steps(1, 1), [1]);
    assert_eq!(*steps(u32::MAX, 1).last().unwrap(), u32::MAX);
}

#[test]
fn coverage_rows_compare_own_and_joint_experts() {
    let report = report();
    assert_eq!(report.rows.iter().map(|row| row.k).collect::<Vec<_>>(), [2, 3, 4]);
    let row = &report.rows[0];
    // Totals are [11, 7, 5, 5] and [13, 12, 0, 3]: experts 0 and 1 in both layers.
    assert_eq!((row.all.worst, row.all.worst_layer), (18.0 / 28.0, 1));
    assert!(near(row.all.mean, (18.0 / 28.0 + 25.0 / 28.0) / 2.0));
    let pm = &row.corpora["pm"];
    assert_eq!((pm.own.worst, pm.own.worst_layer), (6.0 / 8.0, 1)); // experts 3 and 2
    assert_eq!((pm.joint.worst, pm.joint.worst_layer), (2.0 / 8.0, 1));
    assert!(near(pm.own.mean, (6.0 / 8.0 + 7.0 / 8.0) / 2.0));
    let dev = &row.corpora["dev"];
    assert_eq!(dev.own, dev.joint);
    assert!(
        report.rows[2].corpora.values().all(|corpus| corpus.own.worst == 1.0 && corpus.joint.mean == 1.0)
    );
}

#[test]
fn layer_rows_tell_how_uneven_the_routing_is() {
    let table = report().layers;
    let (first, second) = (&table.rows[0].all, &table.rows[1].all);
    assert_eq!((table.rows[0].layer, table.rows[0].n_tokens, table.rows[0].n_expert), (1, 14, 4));
    assert_eq!((first.max_min_ratio, first.dead_experts), (Some(11.0 / 5.0), 0));
    // mean 7, deviations 4, 0, -2, -2
    assert!(near(first.std_mean_ratio, 6f64.sqrt() / 7.0));
    let plogp = |count: f64| -(count / 28.0) * (count / 28.0).log2();
    assert!(near(first.entropy_bits, plogp(11.0) + plogp(7.0) + 2.0 * plogp(5.0)));
    assert_eq!(first.entropy_bits_max, 2.0);
    assert_eq!((second.max_min_ratio, second.max_min_ratio_live, second.dead_experts), (None, 13.0 / 3.0, 1));
    assert_eq!(table.rows[1].corpora["pm"].max_min_ratio_live, 4.0);
    // One finite and one infinite ratio: the median is infinite.
    assert_eq!((table.median_max_min_ratio, table.layers_with_dead_experts), (None, 1));
    assert!(near(table.median_max_min_ratio_live, (2.2 + 13.0 / 3.0) / 2.0));
}

#[test]
fn even_routing_has_ratio_one_and_full_entropy() {
    let usage =
        test_usage::usage(1, &[("a", 8)], &[(0, &[(&[2, 2, 2, 2], None)]), (1, &[(&[8, 0, 0, 0], None)])]);
    let rows = UsageReport::new(&usage).unwrap().layers.rows;
    assert_eq!(rows[0].all.max_min_ratio, Some(1.0));
    assert_eq!((rows[0].all.std_mean_ratio, rows[0].all.entropy_bits), (0.0, 2.0));
    assert_eq!((rows[1].all.max_min_ratio_live, rows[1].all.entropy_bits.to_string().as_str()), (1.0, "0"));
}

#[test]
fn median_is_the_middle_or_the_mean_of_two() {
    let counts: [&[u64]; 3] = [&[9, 1], &[2, 1], &[5, 1]];
    let of = |n: usize| {
        let columns: Vec<[test_usage::Column<'_>; 1]> =
            counts[..n].iter().map(|&count| [(count, None)]).collect();
        let layers: Vec<_> =
            columns.iter().enumerate().map(|(at, column)| (at as u32, &column[..])).collect();
        UsageReport::new(&test_usage::usage(1, &[("a", 10)], &layers)).unwrap().layers.median_max_min_ratio
    };
    assert_eq!(of(3), Some(5.0));
    assert_eq!(of(2), Some(5.5));
    assert_eq!(of(1), Some(9.0));
}

#[test]
fn overlap_compares_the_hot_halves_of_each_pair() {
    let overlap = report().overlap.unwrap();
    assert_eq!(overlap.k, 2);
    // dev is hot for 0, 1 in both layers; pm for 3, 2 and for 0, 1.
    let row = &overlap.rows[0];
    assert_eq!((row.a.as_str(), row.b.as_str()), ("dev", "pm"));
    assert_eq!((row.shared_mean, row.shared_least, row.least_layer), (1.0, 0, 1));
    assert_eq!((row.shared_by_chance, row.jaccard_mean), (1.0, 0.5));
    let one = test_usage::usage(1, &[("a", 3)], &[(0, &[(&[2, 1], None)])]);
    assert!(UsageReport::new(&one).unwrap().overlap.is_none());
}

#[test]
fn overlap_lists_the_closest_pair_first() {
    let usage = test_usage::usage(
        1,
        &[("a", 10), ("b", 10), ("c", 10)],
        &[(0, &[(&[5, 5, 0, 0], None), (&[0, 0, 5, 5], None), (&[6, 4, 0, 0], None)])],
    );
    let overlap = UsageReport::new(&usage).unwrap().overlap.unwrap();
    let pairs: Vec<_> =
        overlap.rows.iter().map(|row| (row.a.as_str(), row.b.as_str(), row.shared_mean)).collect();
    assert_eq!(pairs, [("a", "c", 2.0), ("a", "b", 0.0), ("b", "c", 0.0)]);
    #[cfg(feature = "cli")]
    assert!(
        overlap.text(&TextStyle::default()).contains("a and c want the same experts most, b and c least.")
    );
}

#[test]
fn sentences_name_smallest_k_and_table_limits() {
    let mut counts = vec![1u64; 20];
    counts[0] = 200;
    counts[1] = 161;
    // 361 + 19 - 1 more of the rest: 95 % of 379 is 360.05.
    let usage = test_usage::usage(1, &[("a", 379)], &[(5, &[(&counts, None)])]);
    let report = UsageReport::new(&usage).unwrap();
    assert!(
        report.meaning.starts_with("K = 2 of 20 is the least that leaves every layer 95% of its routing")
    );
    assert!(report.meaning.contains("in layer 5"), "{}", report.meaning);
    assert!(report.limits.contains("not profiled"));
    let even = test_usage::usage(1, &[("a", 4)], &[(0, &[(&[1, 1, 1, 1], None)])]);
    let meaning = UsageReport::new(&even).unwrap().meaning;
    assert!(meaning.starts_with("Only all 4 experts") && meaning.contains("lose 50.0%"), "{meaning}");
}

#[test]
fn usage_that_claims_billions_of_experts_is_reported() {
    let mut usage = usage();
    usage.model.n_expert = u32::MAX;
    let report = UsageReport::new(&usage).unwrap();
    assert_eq!(report.rows.last().unwrap().k, u32::MAX);
    assert!(report.meaning.starts_with("K = 4 of 4294967295 is the least"), "{}", report.meaning);
}

#[test]
fn usage_without_routed_tokens_gives_no_report() {
    let usage = test_usage::usage(1, &[("a", 0)], &[(0, &[(&[0, 0], None)])]);
    assert!(UsageReport::new(&usage).is_none());
}

#[test]
fn json_keeps_the_names_that_scripts_rely_on() {
    let json = serde_json::to_value(report()).unwrap();
    let row = &json["rows"][0];
    for key in ["k", "coverage_mean", "coverage_worst", "worst_layer"] {
        assert!(row[key].is_number(), "{key}");
    }
    assert!(row["corpora"]["pm"]["coverage_worst"].is_number());
    assert!(row["corpora"]["pm"]["joint"]["coverage_worst"].is_number());
    assert_eq!(json["layers"]["rows"][1]["max_min_ratio"], serde_json::Value::Null);
    assert_eq!(json["layers"]["rows"][1]["dead_experts"], 1);
    assert_eq!(json["overlap"]["rows"][0]["shared_least"], 0);
    assert!(json["meaning"].is_string() && json["limits"].is_string());
}

#[cfg(feature = "cli")]
#[test]
fn text_of_a_report_matches_the_snapshot() {
    insta::assert_snapshot!(report().to_string());
}

#[cfg(feature = "cli")]
#[test]
fn imported_figures_are_marked() {
    let mut usage = usage();
    assert!(!report().to_string().contains("Imported"));
    usage.run.merged_from = vec![usage.run.clone(); 2];
    usage.run.merged_from[1].imported_from = Some("llama-imatrix, a.gguf".into());
    let report = UsageReport::new(&usage).unwrap();
    assert_eq!(report.imported_from, ["llama-imatrix, a.gguf"]);
    assert!(report.to_string().contains("Imported: llama-imatrix, a.gguf\n"));
}

/// A usage with `names` as corpora, in layers with numbers of three digits and counts of all sizes.
fn wide(names: &[&str]) -> Usage {
    let counts: Vec<Vec<u64>> = (0..names.len() as u64)
        .map(|at| (0..64).map(|id| (id * 7919 + at * 104_729) % 99_991).collect())
        .collect();
    let column: Vec<test_usage::Column<'_>> = counts.iter().map(|count| (count.as_slice(), None)).collect();
    let corpora: Vec<(&str, u64)> = names.iter().map(|name| (*name, 10_000_000)).collect();
    test_usage::usage(1, &corpora, &[(7, &column), (118, &column)])
}

const NAMES: [&str; 9] =
    ["dev", "pm", "family", "a-corpus-with-quite-a-long-name", "e", "f", "g", "señales de humo", "i"];

#[cfg(feature = "cli")]
#[test]
fn tables_fit_80_columns_for_any_corpora() {
    for n in 1..=NAMES.len() {
        let usage = wide(&NAMES[..n]);
        let text = UsageReport::new(&usage).unwrap().to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{n} corpora: {widest}\n{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
        let model = model(64, 1, &[7, 118]);
        let (blend, pins) = (Blend::Tokens, Pins::default());
        let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
        let table = PlanTable::new(&planner, &|k| Ok(u64::from(k) << 40), true).unwrap();
        let text = table.to_string();
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{n} corpora: {widest}\n{text}");
    }
}

fn model(n_expert: u32, n_expert_used: u32, layers: &[u32]) -> Experts {
    let layers: Vec<_> = layers.iter().map(|&layer| (layer, n_expert, n_expert_used)).collect();
    test_experts::experts("deepseek2", &layers, None)
}

#[test]
fn plan_table_has_exact_bytes_and_coverage_of_each_candidate() {
    let (usage, model) = (usage(), model(4, 2, &[1, 3]));
    let (blend, pins) = (Blend::Tokens, Pins::default());
    let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
    let table = PlanTable::new(&planner, &|k| Ok(1000 + u64::from(k)), false).unwrap();
    let row = &table.rows[0];
    assert_eq!((row.k, row.bytes, row.ties), (2, 1002, 0));
    assert_eq!((row.all.worst, row.all.worst_layer), (18.0 / 28.0, 1));
    assert_eq!(row.corpora["pm"].worst, 2.0 / 8.0);
    assert_eq!(table.rows[1].ties, 1); // 5 and 5 in layer 1
    let json = serde_json::to_value(&table).unwrap();
    for key in ["k", "bytes", "coverage_mean", "coverage_worst", "worst_layer", "ties"] {
        assert!(json["rows"][0][key].is_number(), "{key}");
    }
    let broken = PlanTable::new(&planner, &|_| Err("disk".into()), false).unwrap_err();
    assert!(matches!(broken, crate::plan::PlanError::Size { k: 2, .. }));
}

#[test]
fn plan_table_shows_only_possible_counts_and_their_limit() {
    let usage = wide(&NAMES[..1]);
    let mut model = model(64, 6, &[7, 118]);
    model.groups = Some(Groups { count: 8, used: 4 });
    let (blend, pins) = (Blend::Tokens, "7:0,7:1,7:2".parse().unwrap());
    let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
    let table = PlanTable::new(&planner, &|k| Ok(u64::from(k)), false).unwrap();
    // 16 has no room for three pins in one group.
    assert_eq!(table.rows.iter().map(|row| row.k).collect::<Vec<_>>(), [24, 32, 40, 48, 56, 64]);
    assert_eq!(
        table.limits,
        [
            "possible K: 16 to 64 in steps of 8 (7 numbers)",
            "a token goes to 6 experts: K cannot be less",
            "8 groups of experts, of which a token reaches 4: each keeps the same number",
        ]
    );
}

#[test]
fn numbers_are_written_for_people() {
    assert_eq!([0.0, 0.29, 0.57, 0.9999, 1.0].map(wording::tenths), ["0.0", "29.0", "57.0", "99.9", "100.0"]);
    assert_eq!([0.0, 0.0001, 1.0 - 0.71, 1.0].map(wording::percent_up), ["0.0%", "0.1%", "29.0%", "100.0%"]);
    assert_eq!(
        [1.0, 14.25, 99.94, 99.96, 2810.4].map(wording::ratio),
        ["1.0", "14.2", "99.9", "100", "2810"]
    );
    assert_eq!([0, 999, 1000, 1_234_567].map(wording::grouped), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(wording::short("señales", 4), "señ…");
}

/// [`usage`] whose first half is most of layer 1's corpora.
fn with_halves() -> Usage {
    let sums = |n_tokens, count: [u64; 4]| crate::usage::ExpertSums {
        n_tokens,
        count: count.to_vec(),
        weight: None,
        activation: None,
    };
    let mut usage = usage();
    usage.layers[0].half =
        Some([("dev".into(), sums(5, [5, 3, 2, 0])), ("pm".into(), sums(2, [0, 0, 2, 2]))].into());
    usage.layers[1].half =
        Some([("dev".into(), sums(5, [5, 5, 0, 0])), ("pm".into(), sums(2, [2, 2, 0, 0]))].into());
    usage.check().unwrap();
    usage
}

#[test]
fn stability_compares_the_choices_of_both_halves() {
    let report = UsageReport::new(&with_halves()).unwrap();
    let row = &report.stability.as_ref().unwrap().rows[0];
    // Layer 1: the halves count [5, 3, 4, 2] and [6, 4, 1, 3], so they keep 0 and 2, 0 and 1. Layer 3: 0 and 1 twice.
    assert_eq!((row.k, row.shared_mean, row.shared_least, row.least_layer), (2, 0.75, 0.5, 1));
    let layer = row.layers[0];
    assert_eq!((layer.kept, layer.shared), (2, 1));
    assert!(near(layer.coverage_other, (8.0 / 14.0 + 7.0 / 14.0) / 2.0));
    assert!(near(layer.coverage_own, (9.0 / 14.0 + 10.0 / 14.0) / 2.0));
    assert!(near(row.lost_most, 4.0 / 28.0) && row.lost_layer == 1);
    assert!(
        row.wants_more_text() && row.meaning().contains("More text would change the cut"),
        "{}",
        row.meaning()
    );
    let whole = &report.stability.as_ref().unwrap().rows[2];
    assert!(whole.k == 4 && whole.shared_mean == 1.0 && !whole.wants_more_text());
    // K = 4 cuts nothing, so the text speaks of 3.
    #[cfg(feature = "cli")]
    assert!(report.to_string().contains("At K = 3, the two halves"), "{report}");
    #[cfg(feature = "cli")]
    assert!(report.to_string().lines().all(|line| line.chars().count() <= 80), "{report}");
}

#[test]
fn stability_of_a_plan_follows_its_score_and_pins() {
    let (usage, model) = (with_halves(), model(4, 2, &[1, 3]));
    let (blend, pins) = (Blend::Tokens, "1:2,1:3".parse().unwrap());
    let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
    let table = PlanTable::new(&planner, &|k| Ok(u64::from(k)), true).unwrap();
    let stability = table.stability.as_ref().unwrap();
    assert_eq!(stability.rows[0].shared_mean, 1.0, "both halves keep the pinned experts");
    #[cfg(feature = "cli")]
    assert!(table.to_string().contains("half of the text"), "{table}");
}

#[test]
fn stability_is_left_out_where_halves_are_not_known() {
    assert_eq!(report().stability, None);
    #[cfg(feature = "cli")]
    assert!(!report().to_string().contains("half of the text"));
}

#[test]
fn shell_words_are_quoted_where_they_must_be() {
    assert_eq!(wording::shell_word("dev=src/a.rs"), "dev=src/a.rs");
    assert_eq!(wording::shell_word("two words"), "'two words'");
    assert_eq!(wording::shell_word("it's $HOME"), "'it'\\''s $HOME'");
    assert_eq!(wording::shell_word(""), "''");
}

#[test]
#[cfg(feature = "cli")]
fn report_on_a_narrow_terminal_has_no_line_that_is_wider() {
    let report = UsageReport::new(&with_halves()).unwrap();
    for width in [40, 60] {
        let text = report.text(&TextStyle::terminal(width, false));
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("entropy (bits)") && text.contains("most lost (layer)"), "{text}");
    }
}

#[test]
fn one_layer_is_not_several() {
    assert_eq!((wording::layers(1), wording::layers(94)), ("1 layer".into(), "94 layers".into()));
}
