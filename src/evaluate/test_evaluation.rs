//! A measurement for the tests of those who read one.

use super::{EVAL_SCHEMA, EvalRow, EvalRun, EvaluatedCorpus, Evaluation, Figures, KlFigures, Seen};
use crate::usage::ProfiledModel;
use std::collections::BTreeMap;

/// A cut beside its base: 32 experts, and 16 by two scores, of which one has a divergence.
pub(crate) fn evaluation() -> Evaluation {
    let model = |file: &str, router_hash: &str| ProfiledModel {
        file: file.into(),
        architecture: "qwen3moe".into(),
        fingerprint: "f".into(),
        router_hash: router_hash.into(),
        router_sketch: None,
        n_layer: 4,
        n_expert: 32,
        n_expert_used: 4,
        expert_layers: vec![0, 1, 2, 3],
    };
    let run = EvalRun {
        moeslice: "0.1.0".into(),
        llama_cpp: "b1".into(),
        devices: vec!["CPU".into()],
        ctx_size: 256,
        batch_size: 256,
        ubatch_size: 256,
        wall_seconds: 3.0,
    };
    let corpus = EvaluatedCorpus {
        name: "<held>".into(),
        files: Vec::new(),
        windows: 1,
        tokens: 256,
        scored: 100,
        seen: Some(Seen::Unseen),
        other: false,
    };
    Evaluation {
        schema: EVAL_SCHEMA.into(),
        model: model("cut.gguf", "cut"),
        base: Some(model("base.gguf", "base")),
        run,
        corpora: vec![corpus],
        rows: vec![
            row(32, None, 10.5, None),
            row(16, Some("weight"), 12.5, None),
            row(16, Some("frequency"), 12.0, Some(divergence(0.123, 0.004))),
        ],
        noise: None,
        knee: None,
        remarks: Vec::new(),
    }
}

/// The row of `k` experts.
pub(crate) fn row(k: u32, score: Option<&str>, ppl: f64, kl: Option<KlFigures>) -> EvalRow {
    EvalRow {
        k,
        bytes: u64::from(k),
        score: score.map(str::to_owned),
        plan: None,
        masked: false,
        coverage_mean: None,
        coverage_worst: None,
        worst_layer: None,
        routing: None,
        all: Figures { scored: 100, ppl, ppl_err: 0.5, kl },
        corpora: BTreeMap::new(),
    }
}

/// A divergence with this mean and error, from a base with a perplexity of 10.
pub(crate) fn divergence(kl_mean: f64, kl_err: f64) -> KlFigures {
    KlFigures {
        kl_mean,
        kl_err,
        kl_median: 0.1,
        kl_p99: 0.5,
        kl_max: 3.0,
        dp_rms: 0.1,
        dp_rms_err: 0.01,
        same_top: 0.75,
        same_top_err: 0.01,
        ppl_base: 10.0,
        ln_ppl_ratio: 0.2,
        ln_ppl_ratio_err: 0.01,
    }
}
