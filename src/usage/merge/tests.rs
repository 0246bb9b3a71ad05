use super::*;
use crate::usage::test_usage;

/// One corpus of 10 tokens in two layers; its file has the hash `hash-<name>`.
fn usage(name: &str) -> Usage {
    let weight: &[f64] = &[5.0, 3.0, 2.0, 0.0];
    test_usage::usage(
        2,
        &[(name, 10)],
        &[(1, &[(&[10, 6, 4, 0], Some(weight))]), (2, &[(&[0, 4, 6, 10], Some(&[0.0, 2.0, 3.0, 5.0]))])],
    )
}

fn merged(usages: &[Usage]) -> Result<Merged, MergeError> {
    let named =
        usages.iter().enumerate().map(|(at, usage)| (PathBuf::from(format!("{at}.json")), usage.clone()));
    merge(&named.collect::<Vec<_>>())
}

#[test]
fn corpora_are_kept_apart_and_summed_by_name() {
    let mut again = usage("dev");
    again.corpora[0].files[0].sha256 = "another text".into();
    let Merged { usage: all, remarks } = merged(&[usage("dev"), usage("pm"), again]).unwrap();
    assert_eq!(remarks, [""; 0]);
    all.check().unwrap();
    let names: Vec<_> =
        all.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.tokens, corpus.files.len())).collect();
    assert_eq!(names, [("dev", 20, 2), ("pm", 10, 1)]);
    assert_eq!(all.layers[0].total.count, [30, 18, 12, 0]);
    assert_eq!(all.layers[0].corpora["dev"].count, [20, 12, 8, 0]);
    assert_eq!(all.layers[0].corpora["dev"].weight.as_deref(), Some(&[10.0, 6.0, 4.0, 0.0][..]));
    assert_eq!(all.layers[1].corpora["pm"].n_tokens, 10);
    assert_eq!((all.run.wall_seconds, all.run.merged_from.len()), (4.5, 3));
    // Merged with others, it still tells the runs that it stems from.
    let more = merged(&[all, usage("family")]).unwrap().usage;
    assert_eq!(more.run.merged_from.len(), 4);
    assert_eq!(Usage::parse(more.to_json().as_bytes(), Path::new("m.json")).unwrap(), more);
}

#[test]
fn merge_of_parts_equals_the_profile_of_the_whole() {
    let whole = test_usage::usage(1, &[("a", 5), ("b", 7)], &[(0, &[(&[3, 2], None), (&[1, 6], None)])]);
    let a = test_usage::usage(1, &[("a", 5)], &[(0, &[(&[3, 2], None)])]);
    let b = test_usage::usage(1, &[("b", 7)], &[(0, &[(&[1, 6], None)])]);
    let merged = merged(&[a, b]).unwrap().usage;
    assert_eq!((merged.corpora, merged.layers), (whole.corpora, whole.layers));
}

#[test]
fn other_model_is_refused_and_quantisation_remarked() {
    let mut other = usage("pm");
    other.model.fingerprint = "sha256:q4".into();
    other.model.file = "model-q4.gguf".into();
    let remarks = merged(&[usage("dev"), other.clone()]).unwrap().remarks;
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].contains("1.json") && remarks[0].contains("model-q4.gguf"), "{remarks:?}");
    other.model.router_hash = "sha256:other".into();
    let error = merged(&[usage("dev"), other]).unwrap_err();
    assert!(matches!(error, MergeError::OtherModel { .. }), "{error}");
    assert_eq!(merged(&[]), Err(MergeError::Nothing));
}

#[test]
fn text_in_two_usages_is_refused() {
    let twice = |a: Usage, b: Usage| matches!(merged(&[a, b]), Err(MergeError::Twice { .. }));
    assert!(twice(usage("dev"), usage("dev")));
    // the same texts under another name
    let mut renamed = usage("pm");
    renamed.corpora[0].files[0].sha256 = "hash-dev".into();
    assert!(twice(usage("dev"), renamed.clone()));
    // one text in common, under another name
    let file = |sha256: &str, bytes| super::super::CorpusFile {
        path: "x".into(),
        bytes,
        sha256: sha256.into(),
        left_out: 0,
    };
    renamed.corpora[0].files.push(file("hash-pm", 5));
    assert!(!twice(usage("dev"), renamed.clone()));
    // and under the same name
    renamed.corpora[0].name = "dev".into();
    for layer in &mut renamed.layers {
        let sums = layer.corpora.remove("pm").unwrap();
        layer.corpora.insert("dev".into(), sums);
    }
    assert!(twice(usage("dev"), renamed.clone()));
    // empty files are all alike
    renamed.corpora[0].files = vec![file("hash-other", 5), file("empty", 0)];
    let mut with_empty = usage("dev");
    with_empty.corpora[0].files.push(file("empty", 0));
    assert!(!twice(with_empty, renamed));
}

#[test]
fn usages_of_different_layers_are_refused() {
    let mut short = usage("pm");
    short.layers.pop();
    let error = merged(&[usage("dev"), short.clone()]).unwrap_err();
    let (with, without) = (PathBuf::from("0.json"), PathBuf::from("1.json"));
    assert_eq!(error, MergeError::Layer { layer: 2, with: with.clone(), without: without.clone() });
    let error = merged(&[short, usage("dev")]).unwrap_err();
    assert_eq!(error, MergeError::Layer { layer: 2, with: without, without: with });
    let mut other = usage("pm");
    other.layers[1].n_expert_used = 1;
    let error = merged(&[usage("dev"), other]).unwrap_err();
    assert!(matches!(error, MergeError::Shape { layer: 2, .. }), "{error}");
}

#[test]
fn merge_without_gate_weights_in_one_has_none() {
    let bare = test_usage::usage(
        2,
        &[("pm", 10)],
        &[(1, &[(&[10, 6, 4, 0], None)]), (2, &[(&[0, 4, 6, 10], None)])],
    );
    let Merged { usage: all, remarks } = merged(&[usage("dev"), bare.clone()]).unwrap();
    all.check().unwrap();
    assert!(all.layers.iter().all(|layer| layer.total.weight.is_none()));
    assert!(remarks[0].starts_with("1.json: has no gate weights"), "{remarks:?}");
    assert_eq!(merged(&[bare]).unwrap().remarks, [""; 0]);
}

#[test]
fn counts_that_overflow_are_refused_and_unlike_windows_remarked() {
    let mut large = test_usage::usage(1, &[("a", u64::MAX)], &[(3, &[(&[u64::MAX, 0], None)])]);
    let error =
        merged(&[large.clone(), test_usage::usage(1, &[("b", 1)], &[(3, &[(&[1, 0], None)])])]).unwrap_err();
    assert_eq!(error, MergeError::Overflow { layer: 3, path: "1.json".into() });
    let heavy = |name| test_usage::usage(1, &[(name, 1)], &[(3, &[(&[1, 0], Some(&[1e308, 0.0]))])]);
    let error = merged(&[heavy("a"), heavy("b")]).unwrap_err();
    assert_eq!(error, MergeError::Overflow { layer: 3, path: "1.json".into() });
    large = usage("pm");
    large.run.ctx_size = 2048;
    let remarks = merged(&[usage("dev"), large]).unwrap().remarks;
    assert!(remarks[0].contains("2048") && remarks[0].contains("512"), "{remarks:?}");
}

#[test]
fn merged_usage_with_extreme_durations_is_read_back() {
    let long = |name| {
        let mut usage = usage(name);
        usage.run.wall_seconds = f64::MAX;
        usage
    };
    let all = merged(&[long("dev"), long("pm")]).unwrap().usage;
    assert_eq!(Usage::parse(all.to_json().as_bytes(), Path::new("u.json")).unwrap(), all);
}
