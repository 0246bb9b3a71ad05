//! The profile counts what the graph multiplies.

use crate::passes;
use crate::proof::{Subject, TOKENS, WINDOW, load, text};
use crate::support::observed::{GraphOrder, MultipliedIds, Shape, mtp_pass, pass};
use moeslice::arch::ProfilePass;
use moeslice::corpus::{Content, CorpusText, Text};
use moeslice::llama::{ContextSettings, FlashAttention, Model, Placement};
use moeslice::moe::LayerKind;
use moeslice::profile::{Profile, ProfileOptions, profile};
use moeslice::progress::Silent;
use moeslice::usage::CorpusFile;
use moeslice::windows::{KvUnified, WindowOptions};

/// The profile counts what the graph multiplies, whatever the shape of the pass.
pub fn counts(subject: &Subject) {
    let architecture = &subject.experts.architecture;
    let logits_only = matches!(subject.experts.arch.map(|arch| arch.profile), Some(ProfilePass::Logits(_)));
    let ubatches: &[u32] = if subject.whole_window() { &[WINDOW] } else { &[WINDOW, 10] };
    for head in [true, false] {
        if head && !subject.head() || !head && logits_only {
            continue;
        }
        for &n_ubatch in ubatches {
            let shape = Shape { n_ctx: WINDOW, n_ubatch, head, exact: false };
            let mut seen = MultipliedIds::default();
            pass(&subject.model, &subject.windows(), shape, &mut seen, &mut |_, _| {})
                .unwrap_or_else(|e| panic!("{shape:?}: {e}"));
            for weights in [false, true] {
                check_counts(subject, &seen, shape, weights);
            }
        }
    }
    passes::order(subject);
    passes::packing(subject);
    println!("{architecture}: counts are right");
}

/// The profile of an MTP block counts what its graph multiplies, and leaves the counts of the trunk as they are.
pub fn mtp_counts(subject: &Subject, layer: u32) {
    let placement = Placement { mtp: true, ..subject.placement.clone() };
    let model = load(&subject.path, &placement);
    for n_ubatch in [WINDOW, 10] {
        let shape = Shape { n_ctx: WINDOW, n_ubatch, head: true, exact: false };
        let mut seen = MultipliedIds::default();
        mtp_pass(&model, &subject.windows(), shape, &mut seen).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        assert_eq!(seen.counts.keys().copied().collect::<Vec<_>>(), [layer], "layers that the block runs");
        let mut order = GraphOrder::default();
        mtp_pass(&model, &subject.windows(), shape, &mut order).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        order.check(&[layer]);
        let n_expert_used = subject.experts.layer(layer).expect("a layer").n_expert_used;
        for weights in [false, true] {
            let with = run_profile(subject, &model, shape, weights, true);
            let without = run_profile(subject, &model, shape, weights, false);
            let (usage, trunk) = with.layers.split_last().expect("layers");
            assert_eq!((usage.layer, trunk), (layer, without.layers.as_slice()));
            let steps = (TOKENS - TOKENS.div_ceil(WINDOW as usize)) as u64;
            assert_eq!(usage.total.n_tokens, steps);
            assert_eq!(usage.total.count.iter().sum::<u64>(), steps * u64::from(n_expert_used));
            let graph = |id: usize| seen.counts[&layer].get(&(id as i32)).copied().unwrap_or(0);
            let graph: Vec<u64> = (0..usage.total.count.len()).map(graph).collect();
            assert_eq!(usage.total.count, graph, "{shape:?}, weights {weights}");
        }
    }
    println!("{}: counts of the MTP block are right", subject.experts.architecture);
}

fn run_profile(subject: &Subject, model: &Model, shape: Shape, weights: bool, mtp: bool) -> Profile {
    let options = ProfileOptions {
        windows: WindowOptions {
            ctx_size: WINDOW,
            batch_size: 2 * WINDOW,
            ubatch_size: shape.n_ubatch,
            kv_unified: KvUnified::Off,
            settings: ContextSettings { flash_attention: FlashAttention::Off, ..ContextSettings::default() },
        },
        chunks: None,
        weights,
        activations: false,
        hold_out: None,
        parse_special: false,
        generate: None,
        lm_head: shape.head,
        mtp,
        share: None,
    };
    let file = CorpusFile { path: "text".into(), bytes: 0, sha256: String::new(), left_out: 0 };
    let corpus = CorpusText {
        name: "text".into(),
        texts: vec![Text { path: "text.txt".into(), file, content: Content::Plain(text().into()) }],
    };
    profile(model, &subject.experts, &[corpus], &options, &mut Silent)
        .unwrap_or_else(|e| panic!("{shape:?}, weights {weights}: {e}"))
}

fn check_counts(subject: &Subject, seen: &MultipliedIds, shape: Shape, weights: bool) {
    let profile = run_profile(subject, &subject.model, shape, weights, false);
    let expected = passes::trunk_layers(subject);
    assert_eq!(profile.layers.iter().map(|layer| layer.layer).collect::<Vec<_>>(), expected);
    assert_eq!(seen.counts.keys().copied().collect::<Vec<_>>(), expected, "layers in the graph");
    for usage in &profile.layers {
        let layer = subject.experts.layer(usage.layer).expect("a layer with experts");
        let graph = &seen.counts[&usage.layer];
        let graph: Vec<u64> =
            (0..layer.n_expert as i32).map(|id| graph.get(&id).copied().unwrap_or(0)).collect();
        assert_eq!(usage.total.count, graph, "layer {}, {shape:?}, weights {weights}", usage.layer);
        assert_eq!(usage.total.n_tokens, TOKENS as u64);
        assert_eq!(
            graph.iter().sum::<u64>(),
            TOKENS as u64 * u64::from(layer.n_expert_used),
            "all that are seen"
        );
        if layer.kind == LayerKind::Hash {
            assert_eq!(usage.total.count, table_counts(subject, usage.layer), "by the table");
        }
        let sums = usage.total.weight.as_ref();
        assert_eq!(sums.is_some(), weights);
        if let Some(sums) = sums {
            for (weight, count) in sums.iter().zip(&usage.total.count) {
                assert!(weight.is_finite() && (*count > 0) == (*weight != 0.0), "{weight} for {count}");
            }
        }
    }
}

/// What a table sends to each expert, computed from the file.
fn table_counts(subject: &Subject, layer: u32) -> Vec<u64> {
    let name = format!("blk.{layer}.ffn_gate_tid2eid.weight");
    let (info, data) = subject.tiny.tensor(&name).expect("a table");
    let mut counts = vec![0; subject.experts.n_expert as usize];
    for token in subject.windows().concat() {
        let row = 4 * info.dims[0] as usize;
        for id in data[row * token as usize..][..row].chunks_exact(4) {
            counts[u32::from_le_bytes(id.try_into().expect("4 bytes")) as usize] += 1;
        }
    }
    counts
}
