use super::*;

fn pins(text: &str) -> Pins {
    text.parse().unwrap()
}

#[test]
fn highest_scores_stay_in_ascending_order() {
    let model = experts("qwen3moe", 1, &[(0, 5), (3, 5)]);
    let scores = scores(&[(0, &[1.0, 9.0, 3.0, 7.0, 5.0]), (3, &[5.0, 4.0, 3.0, 2.0, 1.0])]);
    let choice = choose(&model, &scores, 3, &Pins::default()).unwrap();
    assert_eq!(choice.keep, [(0, vec![1, 3, 4]), (3, vec![0, 1, 2])].into());
    assert_eq!(choice.ties, Ties::default());
}

#[test]
fn ties_at_the_cut_go_by_gate_weight_then_lower_id() {
    let model = experts("qwen3moe", 1, &[(0, 5), (1, 5), (2, 5), (3, 5)]);
    let mut scores = scores(&[
        (0, &[2.0, 2.0, 9.0, 2.0, 1.0]), // three at the cut, the weight decides
        (1, &[2.0, 2.0, 9.0, 2.0, 1.0]), // three at the cut, two of them alike in weight
        (2, &[4.0, 4.0, 9.0, 1.0, 1.0]), // equals, but not at the cut
        (3, &[0.0, 0.0, 0.0, 0.0, 0.0]), // all alike
    ]);
    scores.get_mut(&0).unwrap().tie = Some(vec![0.1, 0.3, 0.9, 0.2, 0.0]);
    scores.get_mut(&1).unwrap().tie = Some(vec![0.5, 0.2, 0.9, 0.2, 0.0]);
    let choice = choose(&model, &scores, 3, &Pins::default()).unwrap();
    assert_eq!(choice.keep[0], [1, 2, 3]);
    assert_eq!(choice.keep[1], [0, 1, 2]);
    assert_eq!(choice.keep[2], [0, 1, 2]);
    assert_eq!(choice.keep[3], [0, 1, 2]);
    assert_eq!(choice.ties, Ties { layers: 3, experts: 3 + 3 + 5, by_id: 2 });
}

#[test]
fn groups_keep_the_same_number_each() {
    let model = grouped(experts("deepseek2", 2, &[(0, 8)]), 2, 1);
    let scores = scores(&[(0, &[1.0, 2.0, 4.0, 3.0, 9.0, 8.0, 7.0, 7.0])]);
    let choice = choose(&model, &scores, 6, &Pins::default()).unwrap();
    assert_eq!(choice.keep[0], [1, 2, 3, 4, 5, 6]);
    assert_eq!(choice.ties, Ties { layers: 1, experts: 2, by_id: 1 });
    assert!(matches!(choose(&model, &scores, 5, &Pins::default()), Err(PlanError::Keep(_))));
}

#[test]
fn architecture_that_ignores_groups_is_cut_without_them() {
    let ignoring =
        crate::arch::architectures().iter().find(|row| !row.groups && row.refuse.is_none()).unwrap();
    let model = grouped(experts(ignoring.architecture, 1, &[(0, 8)]), 2, 1);
    let scores = scores(&[(0, &[1.0, 2.0, 4.0, 3.0, 9.0, 8.0, 7.0, 6.0])]);
    assert_eq!(choose(&model, &scores, 4, &Pins::default()).unwrap().keep[0], [4, 5, 6, 7]);
}

#[test]
fn layer_of_at_most_k_experts_stays_whole_without_counts() {
    let model = experts("nemotron_h_moe", 1, &[(1, 8), (3, 4), (5, 6)]);
    let scores =
        scores(&[(1, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), (5, &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0])]);
    let keep = choose(&model, &scores, 4, &Pins::default()).unwrap().keep;
    assert_eq!(keep, [(1, vec![4, 5, 6, 7]), (3, vec![0, 1, 2, 3]), (5, vec![0, 1, 2, 3])].into());
    assert_eq!(choose(&model, &BTreeMap::new(), 8, &Pins::default()).unwrap().keep[5].len(), 6);
}

#[test]
fn layer_never_reached_is_refused_and_mtp_layer_apart() {
    let scores = scores(&[(0, &[1.0, 2.0, 3.0, 4.0])]);
    let model = experts("glm4moe", 1, &[(0, 4), (7, 4)]);
    let error = choose(&model, &scores, 2, &Pins::default()).unwrap_err();
    assert!(matches!(error, PlanError::NeverReached { layer: 7 }), "{error}");
    let error = choose(&with_mtp(model.clone()), &scores, 2, &Pins::default()).unwrap_err();
    assert!(matches!(error, PlanError::Mtp { layer: 7, runs: false }), "{error}");
    // Nothing is cut: no counts are needed.
    assert!(choose(&with_mtp(model), &scores, 4, &Pins::default()).is_ok());
}

#[test]
fn usage_of_another_shape_is_refused() {
    let model = experts("qwen3moe", 1, &[(0, 4)]);
    let error = choose(&model, &scores(&[(0, &[1.0; 3])]), 2, &Pins::default()).unwrap_err();
    assert!(matches!(error, PlanError::ExpertCount { layer: 0, counted: 3, n_expert: 4 }), "{error}");
    let error = choose(&model, &scores(&[(0, &[1.0; 4]), (1, &[1.0; 4])]), 2, &Pins::default()).unwrap_err();
    assert!(matches!(error, PlanError::ForeignLayer { layer: 1 }), "{error}");
}

#[test]
fn pinned_experts_stay_at_any_score() {
    let model = experts("qwen3moe", 1, &[(0, 5), (1, 5)]);
    let values: &[f64] = &[5.0, 4.0, 3.0, 2.0, 1.0];
    let choice = choose(&model, &scores(&[(0, values), (1, values)]), 3, &pins("1:4, 1:0")).unwrap();
    assert_eq!(choice.keep, [(0, vec![0, 1, 2]), (1, vec![0, 1, 4])].into());
}

#[test]
fn pins_that_do_not_fit_are_refused_with_layer_and_count() {
    let model = experts("qwen3moe", 1, &[(0, 5), (2, 5)]);
    let values: &[f64] = &[5.0, 4.0, 3.0, 2.0, 1.0];
    let layers = scores(&[(0, values), (2, values)]);
    let refused = |k, text| choose(&model, &layers, k, &pins(text)).unwrap_err();
    assert!(matches!(refused(3, "1:0"), PlanError::PinLayer { layer: 1 }));
    assert!(matches!(refused(3, "0:4,2:5"), PlanError::PinId { layer: 2, id: 5, n_expert: 5 }));
    assert!(matches!(refused(2, "2:0,2:1,2:2"), PlanError::PinCount { layer: 2, pins: 3, k: 2 }));
    assert!(choose(&model, &layers, 3, &pins("2:0,2:1,2:2,2:0")).is_ok());
    assert!(choose(&model, &layers, 5, &pins("2:0,2:1,2:2,2:3")).is_ok());
    let model = grouped(experts("deepseek2", 2, &[(0, 8)]), 2, 1);
    let error = choose(&model, &scores(&[(0, &[1.0; 8])]), 4, &pins("0:4,0:5,0:7")).unwrap_err();
    assert!(matches!(error, PlanError::PinGroup { layer: 0, group: 1, pins: 3, k: 2 }), "{error}");
}

#[test]
fn pins_are_read_and_printed() {
    assert_eq!(pins("3:5,0:17, 3:2").to_string(), "0:17,3:2,3:5");
    for text in ["", "3", "3:", ":5", "3:5,", "a:1", "+3:5", "3:-5", "3:5:7", "4294967296:0"] {
        assert!(text.parse::<Pins>().is_err(), "{text}");
    }
}

#[test]
fn choice_that_the_model_forbids_is_refused_without_a_profile() {
    let model = with_mtp(experts("glm4moe", 2, &[(0, 8), (1, 8)]));
    let early = |keep: &str, text: &str, mtp: bool| {
        let pins = if text.is_empty() { Pins::default() } else { pins(text) };
        check_early(&model, &keep.parse().unwrap(), &pins, |layer| mtp || layer.kind != LayerKind::Mtp)
    };
    assert_eq!(early("4", "", true).unwrap(), Some(4));
    assert_eq!(early("coverage:0.9", "0:7", true).unwrap(), None);
    assert_eq!(early("8", "", false).unwrap(), Some(8));
    assert!(matches!(early("1", "", true), Err(PlanError::Keep(_))));
    assert!(matches!(early("4", "0:8", true), Err(PlanError::PinId { .. })));
    assert!(matches!(early("2", "0:1,0:2,0:3", true), Err(PlanError::PinCount { .. })));
    for keep in ["4", "50%", "coverage:0.9", "size:1GiB"] {
        assert!(matches!(early(keep, "", false), Err(PlanError::Mtp { layer: 1, runs: false })), "{keep}");
    }
}
