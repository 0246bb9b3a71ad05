//! The sums behind the activation scores, against sums over the experts' outputs themselves.

use crate::support::observed::{Shape, pass};
use crate::support::recipe::Recipe;
use crate::support::tiny::TinyModel;
use crate::{demo, load, windows};
use moeslice::llama::{Model, Node, ObserveError, Observer};
use moeslice::moe::Experts;
use moeslice::profile::{LayerShape, NormsObserver};
use moeslice::usage::ActivationSums;
use moeslice::windows::WindowObserver;
use std::collections::BTreeMap;

/// The nodes of a layer, as the latest ubatch gave them.
#[derive(Default)]
struct Layer {
    ids: Vec<i32>,
    weights: Vec<f32>,
    down: Vec<f32>,
    n_embd: usize,
}

/// Sums from the outputs before their weights (`ffn_moe_down`), where the product reads them after.
struct Outputs {
    n_expert: usize,
    used: usize,
    layers: BTreeMap<u32, Layer>,
    sums: BTreeMap<u32, ActivationSums>,
}

impl Outputs {
    fn name<'n>(node: &'n Node<'_>) -> Option<(&'n str, u32)> {
        let (base, layer) = node.name().rsplit_once('-')?;
        let wanted = [
            "ffn_moe_topk",
            "ffn_moe_down",
            "ffn_moe_weights",
            "ffn_moe_weights_norm",
            "ffn_moe_weights_scaled",
        ];
        wanted.contains(&base).then(|| Some((base, layer.parse().ok()?))).flatten()
    }

    /// Adds a window.
    fn end_window(&mut self) {
        for (il, layer) in std::mem::take(&mut self.layers) {
            let sums = self.sums.entry(il).or_insert_with(|| ActivationSums::zero(self.n_expert));
            assert_eq!(layer.ids.len() * layer.n_embd, layer.down.len(), "layer {il}");
            for (at, &id) in layer.ids.iter().enumerate() {
                let output = &layer.down[at * layer.n_embd..(at + 1) * layer.n_embd];
                let square: f64 = output.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                let id = id as usize;
                sums.norm[id] += square.sqrt();
                sums.norm_squared[id] += square;
                sums.weighted_norm[id] += f64::from(layer.weights[at]) * square.sqrt();
                let max = output.iter().map(|&x| f64::from(x.abs())).fold(0.0, f64::max);
                sums.max[id] = sums.max[id].max(max);
            }
        }
    }
}

impl Observer for Outputs {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        Self::name(node).is_some()
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        let Some((base, il)) = Self::name(node) else { return Ok(()) };
        let layer = self.layers.entry(il).or_default();
        match base {
            "ffn_moe_topk" => node.read_ids(self.used, &mut layer.ids)?,
            "ffn_moe_down" => {
                layer.n_embd = node.dims()[0];
                node.read_floats(&mut layer.down)?;
            }
            // The last of the weights' nodes stays.
            _ => node.read_floats(&mut layer.weights)?,
        }
        Ok(())
    }
}

fn compare(model: &Model, experts: &Experts) {
    let shape = Shape { n_ctx: 64, n_ubatch: 64, head: true, exact: false };
    let windows = windows(model, 3, 64);
    let (n_expert, used) = (experts.n_expert, experts.n_expert_used);
    let mut theirs = Outputs {
        n_expert: n_expert as usize,
        used: used as usize,
        layers: BTreeMap::new(),
        sums: BTreeMap::new(),
    };
    let layer_shape = LayerShape { n_expert, n_expert_used: used };
    let shapes = experts.layers.iter().map(|layer| (layer.layer, layer_shape)).collect();
    let mut ours = NormsObserver::new(&shapes, 1, &experts.architecture, 2);
    for window in &windows {
        let one = std::slice::from_ref(window);
        pass(model, one, shape, &mut theirs, &mut |_, _| {}).unwrap();
        theirs.end_window();
        ours.begin_batch(&vec![0; window.len()]).unwrap();
        pass(model, one, shape, &mut ours, &mut |_, _| {}).unwrap();
    }
    let ours = ours.finish().unwrap();
    assert_eq!(ours.len(), theirs.sums.len());
    for (il, theirs) in &theirs.sums {
        let ours = ours[il][0].rounded();
        let pairs = ours.columns().into_iter().zip(theirs.columns());
        for ((name, ours), (_, theirs)) in pairs {
            assert!(ours.iter().any(|&value| value > 0.0), "layer {il}, {name}");
            for (expert, (a, b)) in ours.iter().zip(theirs).enumerate() {
                assert!((a - b).abs() <= 1e-4 * b.abs(), "layer {il}, expert {expert}, {name}: {a} and {b}");
            }
        }
    }
}

#[test]
fn sums_of_the_demo_model_equal_those_of_its_outputs() {
    let (moe, model) = load(&demo());
    compare(&model, &moe.experts);
}

#[test]
fn sums_of_a_model_with_sigmoid_gates_equal_those_of_its_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    TinyModel::of(&Recipe::of("dots1")).unwrap().write(&path);
    let (moe, model) = load(&path);
    compare(&model, &moe.experts);
}
