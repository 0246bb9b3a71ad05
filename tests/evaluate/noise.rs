//! A model against itself: what differs is noise, and a fault is more than that.

use crate::{demo, load, windows};
use moeslice::evaluate::{EvalCorpus, Scorer, Unobserved, WhatIf};
use moeslice::llama::{ContextSettings, Node, ObserveError, Observer};
use moeslice::progress::Silent;
use moeslice::windows::{KvUnified, Window, WindowOptions};

/// Adds a little to the outputs of the first layer's experts.
struct Fault(f32);

impl Observer for Fault {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        node.name() == "ffn_moe_weighted-0"
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let mut values = Vec::new();
        node.read_floats(&mut values)?;
        values.iter_mut().for_each(|value| *value += self.0);
        node.write_floats(&values)
    }
}

fn options(ubatch_size: u32) -> WindowOptions {
    WindowOptions {
        ctx_size: 128,
        batch_size: 256,
        ubatch_size,
        kv_unified: KvUnified::Auto,
        settings: ContextSettings::default(),
    }
}

#[test]
fn a_fault_stands_out_of_the_noise() {
    let (moe, model) = load(&demo());
    let windows = windows(&model, 4, 128)
        .into_iter()
        .map(|tokens| Window { parts: vec![0; tokens.len()], tokens, answer: None })
        .collect();
    let corpora = [EvalCorpus { name: "text".into(), windows }];
    for room in [u64::MAX, 0] {
        let mut what_if =
            WhatIf::new(&model, &moe.experts, &options(128), &corpora, room, &mut Silent).unwrap();
        let mut kl = |ubatch, observer: &mut dyn Observer| {
            let mut scorer = Scorer::new(&model, &moe.experts, &options(ubatch)).unwrap();
            let losses = what_if.beside(&mut scorer, observer, &mut Silent).unwrap();
            losses.all().unwrap().kl_mean().unwrap()
        };
        assert_eq!(kl(128, &mut Unobserved), 0.0, "the same in every bit");
        let noise = kl(32, &mut Unobserved);
        let fault = kl(32, &mut Fault(0.05));
        assert!(noise < 0.01 && fault > 3.0 * noise.max(1e-6), "noise {noise}, fault {fault}");
    }
}
