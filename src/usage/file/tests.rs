use super::*;
use crate::usage::ModelMatch;
use crate::usage::test_usage;

fn good() -> Usage {
    test_usage::usage(
        2,
        &[("dev", 10), ("pm", 3)],
        &[
            (
                1,
                &[
                    (&[10, 6, 4, 0], Some(&[5.0, 3.0, 2.0, 0.0])),
                    (&[0, 3, 2, 1], Some(&[0.0, 2.0, 0.5, 0.5])),
                ],
            ),
            (2, &[(&[5, 5, 5, 5], Some(&[2.5; 4])), (&[3, 3, 0, 0], Some(&[1.0, 2.0, 0.0, 0.0]))]),
        ],
    )
}

fn identity(fingerprint: &str, router_hash: &str) -> Identity {
    Identity {
        architecture: "qwen3moe".into(),
        fingerprint: fingerprint.into(),
        router_hash: router_hash.into(),
        router_sketch: None,
        n_layer: 3,
        n_expert: 4,
        n_expert_used: 2,
        expert_layers: vec![1, 2],
    }
}

#[test]
fn usage_is_written_and_read_back() {
    let usage = good();
    let text = usage.to_json();
    assert!(text.ends_with("}\n"));
    assert_eq!(Usage::parse(text.as_bytes(), Path::new("u.json")).unwrap(), usage);
    assert_eq!(usage.to_json(), text);
}

/// The message with which an edited file is refused.
fn refused(edit: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut value = serde_json::to_value(good()).unwrap();
    edit(&mut value);
    Usage::parse(value.to_string().as_bytes(), Path::new("u.json")).unwrap_err().to_string()
}

#[test]
fn edited_figures_are_refused_with_layer_and_corpus() {
    type Edit = fn(&mut serde_json::Value);
    let edits: [(Edit, &str); 22] = [
        (|u| u["layers"][0]["total"]["count"][0] = 11.into(), "layer 1, total: counts add up to 27"),
        (|u| u["layers"][1]["corpora"]["pm"]["count"][3] = 1.into(), "layer 2, pm: counts add up to 7"),
        (|u| u["layers"][1]["corpora"]["pm"]["n_tokens"] = 4.into(), "layer 2, pm: counts add up to 6"),
        (
            |u| u["layers"][1]["corpora"]["pm"]["count"] = serde_json::json!([4, 2, 0, 0]),
            "layer 2, pm: expert 0 was selected more often than there were tokens",
        ),
        (
            |u| u["layers"][1]["corpora"]["pm"]["count"] = serde_json::json!([3, 2, 1, 0]),
            "layer 2: the corpora do not add up",
        ),
        (
            |u| u["layers"][1]["corpora"]["pm"]["weight"][0] = 1.5.into(),
            "layer 2: the gate weights of the corpora do not add up",
        ),
        (|u| u["layers"][0]["corpora"]["dev"]["weight"][3] = 0.5.into(), "layer 1, dev: expert 3 was never"),
        (
            |u| u["layers"][0]["corpora"]["dev"]["weight"] = serde_json::json!([1.0]),
            "layer 1, dev: 1 gate weights for 4 experts",
        ),
        (
            |u| u["layers"][0]["corpora"]["dev"]["count"] = serde_json::json!([10, 10]),
            "layer 1, dev: 4 gate weights for 2 experts",
        ),
        (
            |u| drop(u["layers"][0]["corpora"]["dev"].as_object_mut().unwrap().remove("weight")),
            "layer 1, dev: not as many experts, or other columns",
        ),
        (
            |u| drop(u["layers"][0]["corpora"].as_object_mut().unwrap().remove("pm")),
            "layer 1: its corpora are not those listed",
        ),
        (|u| u["corpora"][1]["name"] = "dev".into(), "corpus \"dev\" is listed twice"),
        (|u| u["corpora"][1]["tokens"] = 2.into(), "layer 1, pm: 3 tokens, the corpus has 2"),
        (|u| u["layers"].as_array_mut().unwrap().reverse(), "layers are not in ascending order"),
        (|u| u["layers"] = serde_json::json!([]), "no layer was counted"),
        (|u| u["model"]["expert_layers"] = serde_json::json!([2]), "layer 1 is not among"),
        (|u| u["model"]["expert_layers"] = serde_json::json!([1, 2, 3]), "expert_layers holds 3"),
        (|u| u["model"]["n_expert"] = 3.into(), "layer 1: 4 experts, the model has 3"),
        (|u| u["model"]["n_expert_used"] = 5.into(), "n_expert_used is 5, the model has 4 experts"),
        (|u| u["model"]["n_expert_used"] = 0.into(), "n_expert_used is 0, the model has 4 experts"),
        (
            |u| {
                u["layers"][1]["corpora"]["dev"]["weight"][0] = 1.7e308.into();
                u["layers"][1]["corpora"]["pm"]["weight"][0] = 1.7e308.into();
            },
            "layer 2, pm: the sums overflow",
        ),
        (|u| u["layers"][0]["n_expert_used"] = 3.into(), "layer 1: 3 experts used for a token, of 4"),
    ];
    for (edit, wanted) in edits {
        let message = refused(edit);
        assert!(message.starts_with("u.json: the figures do not agree"), "{message}");
        assert!(message.contains(wanted), "{wanted}: {message}");
    }
}

#[test]
fn unknown_or_repeated_field_is_refused() {
    assert!(refused(|u| u["note"] = 1.into()).contains("unknown field `note`"));
    assert!(refused(|u| u["layers"][0]["total"]["sum"] = 1.into()).contains("unknown field `sum`"));
    let twice = good().to_json().replacen("\"pm\": {", "\"dev\": {", 1);
    let message = Usage::parse(twice.as_bytes(), Path::new("u.json")).unwrap_err().to_string();
    assert!(message.contains("key \"dev\" occurs twice"), "{message}");
}

#[test]
fn other_version_is_refused_apart_from_damage() {
    let newer = r#"{"schema": "moeslice.usage/2", "novelty": true}"#;
    let error = Usage::parse(newer.as_bytes(), Path::new("u.json")).unwrap_err();
    assert!(
        matches!(&error, UsageError::Document(DocumentError::Schema { found, .. }) if found == "moeslice.usage/2"),
        "{error}"
    );
    for text in ["", "{}", "[1]", "\u{feff}{}", "{\"schema\": \"moeslice.usage/1\"}"] {
        let error = Usage::parse(text.as_bytes(), Path::new("u.json")).unwrap_err();
        assert!(matches!(error, UsageError::Document(DocumentError::Parse { .. })), "{text}: {error}");
    }
}

#[test]
fn usage_of_another_model_is_refused_and_quantisation_accepted() {
    let (usage, path, model) = (good(), Path::new("u.json"), Path::new("m.gguf"));
    let model_match =
        |fingerprint, router_hash| usage.model_match(&identity(fingerprint, router_hash), path, model);
    assert_eq!(model_match("sha256:f", "sha256:r").unwrap(), ModelMatch::Same);
    assert_eq!(model_match("sha256:other", "sha256:r").unwrap(), ModelMatch::SameRouters);
    assert_eq!(ModelMatch::Same.remark(), None);
    assert!(ModelMatch::SameRouters.remark().unwrap().contains("quantisation"));
    // A fine-tune: the same metadata and shapes, other weights.
    assert!(model_match("sha256:f", "sha256:other").is_err());
    let message = model_match("sha256:other", "sha256:other").unwrap_err().to_string();
    assert!(message.contains("u.json") && message.contains("m.gguf"), "{message}");
}

#[test]
fn corpus_of_several_files_has_one_hash() {
    let file = |sha256: &str| CorpusFile { path: "a".into(), bytes: 1, sha256: sha256.into(), left_out: 0 };
    let corpus = |files| Corpus { name: "dev".into(), files, tokens: 1, held_out: None };
    assert_eq!(corpus(vec![file("ab")]).sha256(), "ab");
    // printf 'ab\ncd\n' | sha256sum
    assert_eq!(
        corpus(vec![file("ab"), file("cd")]).sha256(),
        "5141648ccbe924f6462cfc7085ccd21779b89d8cee1438281bf1b4cd8d63ac2a"
    );
}
