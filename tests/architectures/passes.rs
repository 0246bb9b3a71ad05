//! What the shape of a pass must not change, and what a pass relies on.

use crate::proof::{Subject, TOKENS, WINDOW, outputs};
use crate::support::observed::{GraphOrder, Hiding, Shape, pass};
use moeslice::evaluate::ExpertMask;
use moeslice::llama::{ContextSettings, FlashAttention, Site};
use moeslice::moe::{ExpertLayer, KeptExperts, LayerKind, Role};
use moeslice::profile::{LayerShape, RoutingObserver, Tally};
use moeslice::progress::Silent;
use moeslice::windows::{KvUnified, PassConfig, PassNeeds, Runner, Window, WindowOptions};

/// What a pass that ends behind the last selection relies on.
pub fn order(subject: &Subject) {
    let shape = Shape { n_ctx: WINDOW, n_ubatch: WINDOW, head: subject.head(), exact: false };
    let mut order = GraphOrder::default();
    pass(&subject.model, &subject.windows(), shape, &mut order, &mut |_, _| {})
        .unwrap_or_else(|e| panic!("{e}"));
    order.check(&trunk_layers(subject));
}

pub fn trunk_layers(subject: &Subject) -> Vec<u32> {
    let trunk = subject.experts.layers.iter().filter(|layer| layer.kind != LayerKind::Mtp);
    trunk.map(|layer| layer.layer).collect()
}

/// Windows in a common store of keys and values, several in an ubatch, are counted as each by itself, and each token
/// for its own part.
pub fn packing(subject: &Subject) {
    let windows: Vec<Window> = subject
        .windows()
        .into_iter()
        .map(|tokens| {
            let parts = (0..tokens.len() as u32).map(|at| at / 5 % 2).collect();
            Window { tokens, parts, answer: None }
        })
        .collect();
    let run = |kv_unified, batch_size| {
        let options = WindowOptions {
            ctx_size: WINDOW,
            batch_size,
            ubatch_size: 4 * WINDOW,
            kv_unified,
            settings: ContextSettings { flash_attention: FlashAttention::Off, ..ContextSettings::default() },
        };
        let needs = PassNeeds { in_order: true, ..PassNeeds::default() };
        let config = PassConfig::new(&subject.model, &subject.experts, &options, needs).expect("a pass");
        let shape =
            |layer: &ExpertLayer| LayerShape { n_expert: layer.n_expert, n_expert_used: layer.n_expert_used };
        let layers = subject.experts.layers.iter().filter(|layer| layer.kind != LayerKind::Mtp);
        let mut tally = Tally::new(layers.map(|layer| (layer.layer, shape(layer))).collect(), true, 2);
        let mut observer = RoutingObserver::new(&mut tally, true).stopping_early();
        let mut silent = Silent;
        let mut runner = Runner::new(&subject.model, &config, TOKENS as u64, &mut silent).expect("a context");
        runner
            .run(&windows, &mut observer)
            .unwrap_or_else(|e| panic!("{kv_unified:?}, -b {batch_size}: {e}"));
        observer.tally().expect("good readings");
        let ubatches = observer.ubatches();
        let counts: Vec<Vec<u64>> =
            tally.finish().expect("all tokens").into_values().flatten().map(|sums| sums.count).collect();
        (counts, ubatches)
    };
    let (apart, ubatches) = run(KvUnified::Off, 8 * WINDOW);
    assert_eq!((ubatches.count, ubatches.largest), (4, WINDOW));
    let (together, ubatches) = run(KvUnified::On, 8 * WINDOW);
    let one_sequence = subject.whole_window() || subject.model.is_recurrent() || subject.model.has_indexer();
    let expected = if one_sequence { (4, WINDOW) } else { (1, TOKENS as u32) };
    assert_eq!((ubatches.count, ubatches.largest), expected);
    assert_eq!(together, apart, "several windows at once");
    if !subject.whole_window() {
        // Each window of 32 tokens in two slices, the last of 11 in one.
        let (slices, ubatches) = run(KvUnified::Off, 20);
        assert_eq!((ubatches.count, ubatches.largest), (7, 20));
        assert_eq!(slices, apart, "windows in slices");
    }
}

/// A mask that is not shown a site that it needs says so.
pub fn hidden_sites_are_missed(subject: &Subject, kept: &KeptExperts) {
    let biased = subject
        .experts
        .layers
        .iter()
        .any(|layer| layer.kind == LayerKind::Trunk && layer.tensor(Role::SelectionBias).is_some());
    let named_so = subject.experts.architecture != "kolibri1";
    for site in [Site::ProbsBiased, Site::Topk] {
        let hash = subject.experts.layers.iter().any(|layer| layer.kind == LayerKind::Hash);
        if !(if site == Site::Topk { hash } else { biased && named_so }) {
            continue;
        }
        let mut mask = ExpertMask::new(&subject.experts, kept).unwrap_or_else(|e| panic!("{e}"));
        outputs(subject, &subject.model, &mut Hiding { observer: &mut mask, site });
        let error = mask.check_reached().expect_err("a hole in the mask").to_string();
        assert!(error.contains(site.name()), "{error}");
    }
}
