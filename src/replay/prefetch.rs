//! Fetching ahead: which experts the next layer is expected to need.
//!
//! Expected are the experts `f` of the next layer with the greatest `Σ P(f | e)` over the experts `e` that the token goes to
//! in this layer, where `P(f | e)` is the share of the tokens so far that went to `e` here and to `f` there. Of equal ones
//! the lower id comes first; those that never went together are not expected. It learns from single tokens alone, and
//! predicts for them alone: a ubatch needs most experts anyway.

use crate::trace::TraceMeta;

/// Counts of the pairs of experts in neighbouring layers.
pub(super) struct Predictor {
    layers: Vec<Pairs>,
    scores: Vec<f64>,
    order: Vec<u16>,
}

/// From one layer to the next.
struct Pairs {
    next: usize,
    /// `[expert][next expert]`; a row is empty until a token went to its expert, since a trace that names many experts in a
    /// few bytes would take gigabytes otherwise.
    together: Vec<Vec<u32>>,
    tokens: Vec<u32>,
}

impl Predictor {
    pub(super) fn new(meta: &TraceMeta) -> Predictor {
        let pairs = meta.layers.windows(2).map(|pair| {
            let (n, next) = (pair[0].n_expert as usize, pair[1].n_expert as usize);
            Pairs { next, together: vec![Vec::new(); n], tokens: vec![0; n] }
        });
        Predictor { layers: pairs.collect(), scores: Vec::new(), order: Vec::new() }
    }

    /// The token went to `here` in layer `at`, and to `there` in the next.
    pub(super) fn learn(&mut self, at: usize, here: &[u16], there: &[u16]) {
        let Some(pairs) = self.layers.get_mut(at) else { return };
        for &expert in here {
            pairs.tokens[usize::from(expert)] = pairs.tokens[usize::from(expert)].saturating_add(1);
            let row = &mut pairs.together[usize::from(expert)];
            row.resize(pairs.next, 0);
            for &other in there {
                row[usize::from(other)] = row[usize::from(other)].saturating_add(1);
            }
        }
    }

    /// The experts of the layer behind `at` that a token which goes to `here` is expected to need, likeliest first.
    pub(super) fn expect(&mut self, at: usize, here: &[u16]) -> &[u16] {
        self.order.clear();
        let Some(pairs) = self.layers.get(at) else { return &self.order };
        self.scores.clear();
        self.scores.resize(pairs.next, 0.0);
        for &expert in here {
            let tokens = pairs.tokens[usize::from(expert)];
            if tokens == 0 {
                continue;
            }
            let row = &pairs.together[usize::from(expert)];
            for (score, &together) in self.scores.iter_mut().zip(row) {
                *score += f64::from(together) / f64::from(tokens);
            }
        }
        let scores = &self.scores;
        self.order.extend((0..pairs.next as u16).filter(|id| scores[usize::from(*id)] > 0.0));
        self.order.sort_by(|a, b| scores[usize::from(*b)].total_cmp(&scores[usize::from(*a)]).then(a.cmp(b)));
        &self.order
    }
}
