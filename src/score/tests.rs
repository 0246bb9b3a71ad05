use super::*;
use crate::usage::test_usage;

/// One layer, two corpora of 10 and 100 tokens, two of four experts selected for each token.
fn two_corpora() -> Usage {
    test_usage::usage(
        2,
        &[("small", 10), ("large", 100)],
        &[(
            0,
            &[
                (&[10, 6, 4, 0], Some(&[5.0, 3.0, 2.0, 0.0])),
                (&[0, 60, 40, 100], Some(&[0.0, 30.0, 30.0, 40.0])),
            ],
        )],
    )
}

#[test]
fn frequency_is_the_count_and_gate_weight_breaks_ties() {
    let scores = scores(&two_corpora(), Score::Frequency, &Blend::Tokens).unwrap();
    assert_eq!(scores[&0].value, [10.0, 66.0, 44.0, 100.0]);
    assert_eq!(scores[&0].tie.as_deref(), Some(&[5.0, 33.0, 32.0, 40.0][..]));
    assert_eq!(scores[&0].ranking(), [3, 1, 2, 0]);
}

#[test]
fn weight_is_the_sum_of_gate_weights() {
    let scores = scores(&two_corpora(), Score::Weight, &Blend::Tokens).unwrap();
    assert_eq!(scores[&0].value, [5.0, 33.0, 32.0, 40.0]);
}

#[test]
fn blend_divides_each_corpus_by_its_tokens() {
    // A quarter of large: expert 0 has 0.75·1.0, expert 1 has 0.75·0.6 + 0.25·0.6, and so on.
    let blend = "small=3,large=1".parse().unwrap();
    let scores = scores(&two_corpora(), Score::Frequency, &blend).unwrap();
    for (value, wanted) in scores[&0].value.iter().zip([0.75, 0.6, 0.4, 0.25]) {
        assert!((value - wanted).abs() < 1e-15, "{value} is not {wanted}");
    }
    assert_eq!(scores[&0].ranking(), [0, 1, 2, 3]);
}

#[test]
fn blend_share_of_zero_leaves_a_corpus_out() {
    let scores = scores(&two_corpora(), Score::Frequency, &"small=1,large=0".parse().unwrap()).unwrap();
    assert_eq!(scores[&0].value, [1.0, 0.6, 0.4, 0.0]);
}

/// A usage of one layer in which expert `e` has `counts[e]` by corpus; a last expert has what is left of the tokens.
fn by_corpus(tokens: &[u64], counts: &[&[u64]]) -> Usage {
    let names = ["a", "b", "c", "d"];
    let corpora: Vec<(&str, u64)> = names.into_iter().zip(tokens.iter().copied()).collect();
    let columns: Vec<Vec<u64>> = (0..tokens.len())
        .map(|corpus| {
            let mut column: Vec<u64> = counts.iter().map(|counts| counts[corpus]).collect();
            column.push(tokens[corpus] - column.iter().sum::<u64>());
            column
        })
        .collect();
    let columns: Vec<test_usage::Column<'_>> =
        columns.iter().map(|column| (column.as_slice(), None)).collect();
    test_usage::usage(1, &corpora, &[(0, &columns)])
}

#[test]
fn equal_blends_are_ties_whatever_the_order_of_their_terms() {
    type Case<'a> = (&'a str, &'a [u64], [&'a [u64]; 2]);
    let equal: [Case<'_>; 4] = [
        ("a=1,b=1,c=1", &[10, 10, 10], [&[1, 1, 5], &[5, 1, 1]]),
        // Other terms, the same sum: 1/10 + 3/10 and 2/10 + 2/10.
        ("a=1,b=1", &[10, 10], [&[1, 3], &[2, 2]]),
        ("a=1,b=1", &[30, 70], [&[3, 14], &[6, 7]]),
        // Shares are the decimals that they are written as: 0.1 * 6 + 0.3 * 1 and 0.1 * 3 + 0.3 * 2.
        ("a=0.1,b=0.3", &[20, 20], [&[6, 1], &[3, 2]]),
    ];
    for (blend, tokens, counts) in equal {
        let usage = by_corpus(tokens, &counts);
        let scores = scores(&usage, Score::Frequency, &blend.parse().unwrap()).unwrap();
        assert_eq!(scores[&0].compare_without_id(0, 1), Ordering::Equal, "{blend} {:?}", scores[&0].value);
    }
    // What differs in the last place is no tie.
    let usage = by_corpus(&[1_000_000_007, 10], &[&[500, 3], &[501, 3]]);
    let scores = scores(&usage, Score::Frequency, &"a=1,b=1".parse().unwrap()).unwrap();
    assert_eq!(scores[&0].compare_without_id(0, 1), Ordering::Greater);
}

#[test]
fn ranking_goes_by_score_then_weight_then_lower_id() {
    let value = vec![5.0, 7.0, 5.0, 5.0];
    let with = LayerScores { value: value.clone(), tie: Some(vec![1.0, 0.0, 2.0, 1.0]) };
    assert_eq!(with.ranking(), [1, 2, 0, 3]);
    let without = LayerScores { value, tie: None };
    assert_eq!(without.ranking(), [1, 0, 2, 3]);
    assert_eq!(without.compare_without_id(0, 3), Ordering::Equal);
    assert_eq!(with.compare_without_id(0, 2), Ordering::Greater);
}

#[test]
fn missing_gate_weights_are_refused_with_the_remedy() {
    let usage = test_usage::usage(1, &[("a", 3)], &[(2, &[(&[2, 1], None)])]);
    let error = scores(&usage, Score::Weight, &Blend::Tokens).unwrap_err();
    assert_eq!(error, ScoreError::NoWeights { layer: 2, score: Score::Weight });
    assert!(error.to_string().contains("no gate weights"));
    assert_eq!(scores(&usage, Score::Frequency, &Blend::Tokens).unwrap()[&2].tie, None);
}

#[test]
fn score_that_is_not_a_number_is_refused_with_layer_and_expert() {
    for bad in [f64::NAN, f64::INFINITY] {
        let mut usage = two_corpora();
        usage.layers[0].total.weight.as_mut().unwrap()[2] = bad;
        // Frequency as well: the weights decide its ties.
        for score in [Score::Frequency, Score::Weight] {
            let error = scores(&usage, score, &Blend::Tokens).unwrap_err();
            assert!(
                matches!(error, ScoreError::NotFinite { layer: 0, expert: 2, score: Score::Weight, .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn blend_of_a_corpus_without_tokens_is_refused() {
    let usage = test_usage::usage(1, &[("a", 3), ("b", 0)], &[(4, &[(&[2, 1], None), (&[0, 0], None)])]);
    let error = scores(&usage, Score::Frequency, &"a=1,b=1".parse().unwrap()).unwrap_err();
    assert_eq!(error, ScoreError::NoTokens { layer: 4, corpus: "b".into() });
    assert!(scores(&usage, Score::Frequency, &"a=1,b=0".parse().unwrap()).is_ok());
}

#[test]
fn meaningless_blends_are_refused() {
    let part = |part: &str| BlendError::Part { part: part.into() };
    let share = |corpus: &str, share: &str| BlendError::Share { corpus: corpus.into(), share: share.into() };
    for (text, wanted) in [
        ("", part("")),
        ("dev", part("dev")),
        ("=1", part("=1")),
        ("dev=1,", part("")),
        ("dev=x", share("dev", "x")),
        ("dev=-1", share("dev", "-1")),
        ("dev=nan", share("dev", "NaN")),
        ("dev=inf", share("dev", "inf")),
        ("dev=1e308,pm=1.5e308", share("pm", &1.5e308.to_string())),
        ("dev=1,dev=2", BlendError::Twice { corpus: "dev".into() }),
        ("dev=0,pm=0", BlendError::AllZero),
    ] {
        assert_eq!(text.parse::<Blend>().unwrap_err(), wanted, "{text}");
    }
}

#[test]
fn blend_that_does_not_name_the_corpora_of_the_usage_is_refused() {
    let of = |text: &str| scores(&two_corpora(), Score::Frequency, &text.parse().unwrap()).unwrap_err();
    assert_eq!(
        of("small=1,large=1,other=0"),
        BlendError::UnknownCorpus { corpus: "other".into(), known: "small, large".into() }.into()
    );
    assert_eq!(of("large=1"), BlendError::NoShare { corpus: "small".into() }.into());
}

#[test]
fn score_names_are_read_back() {
    for score in Score::ALL {
        assert_eq!(score.to_string().parse(), Ok(score));
    }
    assert!("Frequency".parse::<Score>().unwrap_err().to_string().contains("frequency, weight"));
    let blend: Blend = "a=b=0.5,c=2".parse().unwrap();
    assert_eq!(blend.to_string(), "a=b=0.5,c=2");
    assert_eq!(blend, Blend::Shares([("a=b".into(), 0.5), ("c".into(), 2.0)].into()));
}

/// One layer of four experts, of which the last was never selected.
fn with_activations() -> crate::usage::Usage {
    let columns: &[test_usage::Column<'_>] = &[(&[4, 2, 1, 0], Some(&[2.0, 1.5, 0.5, 0.0]))];
    let mut usage = test_usage::usage(1, &[("a", 7)], &[(2, columns)]);
    let activation = crate::usage::ActivationSums {
        norm: vec![8.0, 6.0, 5.0, 0.0],
        norm_squared: vec![20.0, 18.0, 25.0, 0.0],
        weighted_norm: vec![4.0, 4.5, 2.5, 0.0],
        max: vec![1.0, 2.0, 3.0, 0.0],
    };
    usage.layers[0].total.activation = Some(activation.clone());
    usage.layers[0].corpora.get_mut("a").unwrap().activation = Some(activation);
    usage
}

#[test]
fn activation_scores_follow_their_formulas() {
    let usage = with_activations();
    usage.check().unwrap();
    for (score, values) in [
        (Score::EanSum, [8.0, 6.0, 5.0, 0.0]),
        (Score::EanMean, [2.0, 3.0, 5.0, 0.0]),
        (Score::Msan, [5.0, 9.0, 25.0, 0.0]),
        (Score::WeightedEan, [4.0, 4.5, 2.5, 0.0]),
        (Score::Reap, [1.0, 2.25, 2.5, 0.0]),
    ] {
        assert_eq!(scores(&usage, score, &Blend::Tokens).unwrap()[&2].value, values, "{score}");
        assert_eq!(LayerScores::of(&usage.layers[0].total, score).unwrap().value, values, "{score}");
        assert_eq!(score.name().parse(), Ok(score));
        // A blend of one corpus divides the sums by its tokens, and leaves means as they are.
        let blended = &scores(&usage, score, &"a=1".parse().unwrap()).unwrap()[&2].value;
        let parts = if score.is_mean() { 1.0 } else { 7.0 };
        let close = blended.iter().zip(values).all(|(a, b)| (a - b / parts).abs() < 1e-12);
        assert!(close, "{score}: {blended:?}");
    }
}

#[test]
fn default_is_the_best_score_that_the_data_allow() {
    let mut usage = with_activations();
    assert_eq!(Score::best_of(&usage), Score::best_for(ScoreNeeds::Activations));
    usage.layers[0].total.activation = None;
    assert_eq!(Score::best_of(&usage), Score::Weight);
    let error = scores(&usage, Score::Reap, &Blend::Tokens).unwrap_err();
    assert_eq!(error, ScoreError::NoActivations { layer: 2, score: Score::Reap });
    usage.layers[0].total.weight = None;
    assert_eq!(Score::best_of(&usage), Score::Frequency);
}
