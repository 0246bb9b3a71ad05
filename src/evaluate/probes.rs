//! What single exchanges did, and what pairs of experts may therefore do.

use super::exchange::{Exchange, Margin};
use std::collections::{BTreeMap, BTreeSet};

/// The probes of a round: each expert next to a cut, against one of the other side that is known already.
///
/// The change that an exchange brings is taken for a sum, of what the one expert costs and what the other gains. So two
/// lists of experts are known from as many probes as they have experts, less one, and all pairs of them can be guessed.
pub(super) struct Probes {
    margins: Vec<Probed>,
}

struct Probed {
    margin: Margin,
    /// What the divergence rises by as an expert leaves, up to one number that all have in common.
    leaving: BTreeMap<u32, f64>,
    /// What it rises by as an expert enters, less that number.
    entering: BTreeMap<u32, f64>,
}

impl Probed {
    fn next(&self) -> Option<Exchange> {
        let Margin { layer, inside, outside } = &self.margin;
        let first = |ids: &[u32], known: &BTreeMap<u32, f64>, is_known: bool| {
            ids.iter().copied().find(|id| known.contains_key(id) == is_known)
        };
        let known = (first(inside, &self.leaving, true), first(outside, &self.entering, true));
        let unknown = (first(inside, &self.leaving, false), first(outside, &self.entering, false));
        let (leaves, enters) = match known {
            (None, None) => unknown.0.zip(unknown.1)?,
            _ => {
                let (inner, outer) = (unknown.0.zip(known.1), known.0.zip(unknown.1));
                // The lists grow by turns.
                if self.leaving.len() <= self.entering.len() { inner.or(outer)? } else { outer.or(inner)? }
            }
        };
        Some(Exchange { layer: *layer, leaves, enters })
    }

    fn found(&mut self, exchange: Exchange, change: f64) {
        let Exchange { leaves, enters, .. } = exchange;
        match (self.leaving.get(&leaves), self.entering.get(&enters)) {
            (Some(known), _) => self.entering.insert(enters, change - known),
            (None, Some(known)) => self.leaving.insert(leaves, change - known),
            (None, None) => {
                self.entering.insert(enters, 0.0);
                self.leaving.insert(leaves, change)
            }
        };
    }

    fn guesses(&self) -> impl Iterator<Item = (f64, Exchange)> {
        let layer = self.margin.layer;
        let pair = move |(&leaves, cost): (&u32, &f64), (&enters, gain): (&u32, &f64)| {
            (cost + gain, Exchange { layer, leaves, enters })
        };
        self.leaving.iter().flat_map(move |inner| self.entering.iter().map(move |outer| pair(inner, outer)))
    }
}

impl Probes {
    pub(super) fn new(margins: Vec<Margin>) -> Probes {
        let probed = |margin| Probed { margin, leaving: BTreeMap::new(), entering: BTreeMap::new() };
        Probes { margins: margins.into_iter().map(probed).collect() }
    }

    /// The next probe of each margin, from the cut outwards; nothing when all experts are known.
    pub(super) fn ring(&self) -> Vec<Exchange> {
        self.margins.iter().filter_map(Probed::next).collect()
    }

    /// Notes the change of the divergence by an exchange that was not made.
    pub(super) fn found(&mut self, exchange: Exchange, change: f64) {
        if let Some(probed) = self.of(exchange) {
            probed.found(exchange, change);
        }
    }

    /// Takes both experts of an exchange that was made out of their margin.
    pub(super) fn made(&mut self, exchange: Exchange) {
        if let Some(probed) = self.of(exchange) {
            probed.margin.inside.retain(|&id| id != exchange.leaves);
            probed.margin.outside.retain(|&id| id != exchange.enters);
            probed.leaving.remove(&exchange.leaves);
            probed.entering.remove(&exchange.enters);
        }
    }

    fn of(&mut self, exchange: Exchange) -> Option<&mut Probed> {
        self.margins.iter_mut().find(|probed| {
            let Margin { layer, inside, outside } = &probed.margin;
            *layer == exchange.layer
                && inside.contains(&exchange.leaves)
                && outside.contains(&exchange.enters)
        })
    }

    /// The best pair of each margin that was not refused and may help, the best of all first.
    pub(super) fn promising(&self, refused: &BTreeSet<Exchange>) -> Vec<Exchange> {
        let best = |probed: &Probed| {
            let open = probed.guesses().filter(|(change, pair)| *change < 0.0 && !refused.contains(pair));
            open.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        sorted(self.margins.iter().filter_map(best))
    }

    /// All pairs, the most promising first.
    pub(super) fn pairs(&self) -> Vec<Exchange> {
        sorted(self.margins.iter().flat_map(Probed::guesses))
    }
}

fn sorted(guesses: impl Iterator<Item = (f64, Exchange)>) -> Vec<Exchange> {
    let mut guesses: Vec<_> = guesses.collect();
    guesses.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    guesses.into_iter().map(|(_, exchange)| exchange).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Experts 0 to 2 stay, 3 to 5 do not; each is worth something, and effects are sums.
    fn probes() -> Probes {
        let margin = |layer| Margin { layer, inside: vec![2, 1, 0], outside: vec![3, 4, 5] };
        Probes::new(vec![margin(0), margin(7)])
    }

    /// Makes `rings` rings of probes; gives their number.
    fn probe(probes: &mut Probes, worth: [f64; 6], rings: usize) -> usize {
        let mut n = 0;
        for _ in 0..rings {
            for exchange in probes.ring() {
                n += 1;
                let change = worth[exchange.leaves as usize] - worth[exchange.enters as usize];
                probes.found(exchange, change * if exchange.layer == 0 { 1.0 } else { 2.0 });
            }
        }
        n
    }

    fn of(layer: u32, leaves: u32, enters: u32) -> Exchange {
        Exchange { layer, leaves, enters }
    }

    const WORTH: [f64; 6] = [3.0, 1.0, 2.0, 2.5, 0.5, 4.0];

    #[test]
    fn the_pair_that_helps_most_is_found_without_a_probe_of_its_own() {
        let mut probes = probes();
        assert_eq!(probes.ring(), [of(0, 2, 3), of(7, 2, 3)], "next to the cut first");
        assert_eq!(probe(&mut probes, WORTH, 9), 2 * 5);
        assert_eq!(probes.promising(&BTreeSet::new()), [of(7, 1, 5), of(0, 1, 5)]);
        assert_eq!(probes.promising(&BTreeSet::from([of(7, 1, 5)])), [of(7, 2, 5), of(0, 1, 5)]);
        assert_eq!(probes.pairs().len(), 18);
        assert_eq!(probes.pairs()[0], of(7, 1, 5));
    }

    #[test]
    fn exchanges_that_cannot_help_are_not_promising() {
        let mut probes = probes();
        probe(&mut probes, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 9);
        assert_eq!(probes.promising(&BTreeSet::new()), []);
    }

    #[test]
    fn probing_goes_on_with_other_experts_where_an_exchange_was_made() {
        for rings in 0..5 {
            let mut probes = probes();
            probe(&mut probes, WORTH, rings);
            for layer in [0, 7] {
                probes.made(of(layer, 2, 3));
            }
            probe(&mut probes, WORTH, 9);
            assert_eq!(probes.pairs().len(), 2 * 4, "{rings}");
            assert_eq!(probes.promising(&BTreeSet::new()), [of(7, 1, 5), of(0, 1, 5)], "{rings}");
        }
    }
}
