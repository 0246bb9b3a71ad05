use super::*;
use crate::evaluate::test_evaluation::{divergence, evaluation, row};
use crate::moe::test_experts;
use crate::page::frame::test_frame::{check_policy, data, markup};
use crate::plan::{KeepTarget, Pins, Plan, PlanSource, Planner};
use crate::report::PlanTable;
use crate::score::{Blend, Score};
use crate::usage::test_usage;
use std::path::Path;

fn usage(names: [&str; 2]) -> Usage {
    let weights: [&[f64]; 2] = [&[5.12345, 3.0, 1.50005, 0.5], &[0.25, 0.25, 1.0, 2.00009]];
    test_usage::usage(
        2,
        &[(names[0], 10), (names[1], 4)],
        &[
            (1, &[(&[10, 6, 3, 1], Some(weights[0])), (&[1, 1, 2, 4], Some(weights[1]))]),
            (
                3,
                &[(&[9, 9, 0, 2], Some(&[4.0, 4.0, 0.0, 1.0])), (&[4, 3, 0, 1], Some(&[2.0, 1.0, 0.0, 0.5]))],
            ),
        ],
    )
}

fn page(usage: &Usage) -> UsagePage<'_> {
    UsagePage { usage, sizes: None, plan: None, bytes: None, measured: None, command: &[] }
}

#[test]
fn embedded_usage_has_the_counts_to_the_unit_and_rounded_weights() {
    let usage = usage(["dev", "pm"]);
    let html = page(&usage).render().unwrap();
    let found = data(&html)["usage"].to_string();
    let found = Usage::parse(found.as_bytes(), Path::new("page")).unwrap();
    assert_eq!(found.corpora, usage.corpora);
    for (found, layer) in found.layers.iter().zip(&usage.layers) {
        assert_eq!(found.total.count, layer.total.count);
        assert_eq!(found.corpora["dev"].count, layer.corpora["dev"].count);
    }
    assert_eq!(found.layers[0].corpora["dev"].weight.as_deref(), Some(&[5.123, 3.0, 1.5, 0.5][..]));
}

#[test]
fn corpus_that_looks_like_markup_stays_text() {
    let evil = "</script><script>alert(1)</script>";
    let usage = usage([evil, "\"><img src=x onerror=alert(1)>"]);
    let html = page(&usage).render().unwrap();
    assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (2, 2));
    assert!(!html.contains("<img"));
    assert!(markup(&html).contains("&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_eq!(data(&html)["usage"]["corpora"][0]["name"], evil);
}

#[test]
fn page_names_its_script_and_style_by_hash_and_loads_nothing() {
    let html = page(&usage(["dev", "pm"])).render().unwrap();
    check_policy(&html, scripts::USAGE);
}

#[test]
fn page_of_a_plan_answers_with_its_figures() {
    let usage = usage(["dev", "pm"]);
    let model = test_experts::experts("qwen3moe", &[(1, 4, 2), (3, 4, 2)], None);
    let (blend, pins) = (Blend::Tokens, Pins::default());
    let planner = Planner::new(&usage, &model, Score::Frequency, &blend, &pins).unwrap();
    let size = |k: u32| Ok(u64::from(k) << 20);
    let sizes = PlanTable::new(&planner, &size, true).unwrap();
    let source = PlanSource { file: "m".into(), fingerprint: "f".into(), router_hash: "r".into() };
    let plan: Plan = planner.plan(&KeepTarget::Count(3), &size, source).unwrap();
    let command = ["moeslice".to_owned(), "report".into(), "two words".into()];
    let page = UsagePage {
        usage: &usage,
        sizes: Some(&sizes),
        plan: Some(&plan),
        bytes: None,
        measured: None,
        command: &command,
    };
    let html = page.render().unwrap();
    // Layer 1 keeps 23 of 28 selections, layer 3 all.
    assert!(html.contains("3 of 4 experts in each layer keep 91.0% of the routing."), "{}", markup(&html));
    assert!(html.contains("Layer 1 keeps least: 82.1%."));
    assert!(html.contains("<dt>Size</dt><dd>3.00 MiB <small>of 4.00 MiB, 75.0%</small>"));
    assert!(html.contains("moeslice report &#39;two words&#39;"));
    assert!(html.contains("not measured"));
    assert_eq!(data(&html)["plan"]["keep"]["3"], serde_json::json!([0, 1, 3]));
}

#[test]
fn measured_figures_take_the_place_of_none() {
    let usage = usage(["dev", "pm"]);
    let measured = Evaluation {
        rows: vec![row(4, None, 10.0, None), row(3, None, 12.5, Some(divergence(0.123, 0.004)))],
        ..evaluation()
    };
    let mut page = page(&usage);
    page.measured = Some(&measured);
    let html = page.render().unwrap();
    assert!(html.contains("&lt;held&gt; (100 tokens scored, not profiled)"));
    assert!(html.contains("<td>12.5 ± 0.50</td><td>0.12 ± 0.0040</td><td>75.0%</td>"));
    assert!(html.contains("id=\"kl-chart\""));
}

#[test]
fn page_of_a_large_model_stays_small() {
    let n = 512;
    let counts: Vec<Vec<u64>> = (0..3u64)
        .map(|corpus| (0..n).map(|id| (id * 7919 + corpus * 104_729) % 9973 + 100).collect())
        .collect();
    let weights: Vec<f64> = (0..n).map(|id| id as f64 / 7.0).collect();
    let columns: Vec<test_usage::Column<'_>> =
        counts.iter().map(|count| (count.as_slice(), Some(weights.as_slice()))).collect();
    let layers: Vec<(u32, &[test_usage::Column<'_>])> =
        (0..94).map(|layer| (layer, columns.as_slice())).collect();
    let usage = test_usage::usage(1, &[("a", 9_000_000), ("b", 9_000_000), ("c", 9_000_000)], &layers);
    let html = page(&usage).render().unwrap();
    assert!(html.len() < LIMIT, "{} bytes", html.len());
    let found = data(&html);
    assert!(found["usage"]["layers"][93]["total"]["weight"].is_null(), "weights find no room");
    assert_eq!(found["usage"]["layers"][93]["corpora"]["c"]["count"][511], counts[2][511]);
}

#[test]
fn usage_without_routing_has_no_page() {
    let usage = test_usage::usage(2, &[("dev", 0)], &[(1, &[(&[0, 0, 0, 0], None)])]);
    assert_eq!(page(&usage).render(), None);
}
