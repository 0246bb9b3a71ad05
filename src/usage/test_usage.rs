//! Small usages for tests.

use super::*;
use std::collections::BTreeMap;

/// Counts and, where collected, gate weights of one corpus in one layer, `[n_expert]` each.
pub(crate) type Column<'a> = (&'a [u64], Option<&'a [f64]>);

/// A usage of `corpora` (name, tokens) in `layers` (layer, one column a corpus), `n_expert_used` experts a token.
///
/// Tokens of a layer follow from its counts; figures that contradict each other stay as they are.
pub(crate) fn usage(n_expert_used: u32, corpora: &[(&str, u64)], layers: &[(u32, &[Column<'_>])]) -> Usage {
    let sums = |column: &Column<'_>| ExpertSums {
        n_tokens: column.0.iter().sum::<u64>() / u64::from(n_expert_used),
        count: column.0.to_vec(),
        weight: column.1.map(<[f64]>::to_vec),
        activation: None,
    };
    let layers: Vec<LayerUsage> = layers
        .iter()
        .map(|(layer, columns)| {
            let parts: Vec<ExpertSums> = columns.iter().map(sums).collect();
            let mut total = ExpertSums::zero(parts[0].count.len(), parts[0].weight.is_some());
            parts.iter().for_each(|part| total.add(part).expect("counts of a test are small"));
            let corpora: BTreeMap<_, _> =
                corpora.iter().map(|(name, _)| (*name).to_owned()).zip(parts).collect();
            LayerUsage { layer: *layer, n_expert_used, total, corpora, half: None, exact: None }
        })
        .collect();
    let expert_layers: Vec<u32> = layers.iter().map(|layer| layer.layer).collect();
    Usage {
        schema: USAGE_SCHEMA.into(),
        model: ProfiledModel {
            file: "model.gguf".into(),
            architecture: "qwen3moe".into(),
            fingerprint: "sha256:f".into(),
            router_hash: "sha256:r".into(),
            router_sketch: None,
            n_layer: expert_layers.last().map_or(1, |layer| layer + 1),
            n_expert: layers.iter().map(|layer| layer.total.count.len() as u32).max().unwrap_or(0),
            n_expert_used,
            expert_layers,
        },
        run: Run {
            moeslice: "0.0.0".into(),
            llama_cpp: Some("b1".into()),
            imported_from: None,
            devices: vec!["CPU".into()],
            ctx_size: 512,
            batch_size: 512,
            ubatch_size: 512,
            chat_date: None,
            wall_seconds: 1.5,
            merged_from: vec![],
            ..Run::default()
        },
        corpora: corpora
            .iter()
            .map(|(name, tokens)| Corpus {
                name: (*name).into(),
                files: vec![CorpusFile {
                    path: format!("{name}.txt"),
                    bytes: 9,
                    sha256: format!("hash-{name}"),
                    left_out: 0,
                }],
                tokens: *tokens,
                held_out: None,
            })
            .collect(),
        layers,
    }
}
