//! `ema`, `near-pick-ema`, `inverse-router-ema`: the expert with the least score is evicted. The score `S` of every expert
//! of the layers that share the cache, resident or not, decays with every token: `S ← (1 − α)·S + α·c`, α = 0.05. What
//! differs is the credit `c` of a token:
//! - `ema`: 1 for each chosen expert.
//! - `near-pick-ema`: 1 for each chosen expert, and ½ for those that were near: the ranks from `n_expert_used` up to, and
//!   without, `2·n_expert_used` of the router alone, whatever was chosen in their place.
//! - `inverse-router-ema`: 1 for each chosen expert, and `1 / (1 + z₁ − z)` for every other candidate, `z` being its
//!   router value and `z₁` the greatest.
//!
//! The tokens of a ubatch count one after the other, all of them before anything is evicted. Scores are held so that their
//! order changes only at experts with credit: as `ln S` at the time of the last credit, plus what all have lost since.

use super::demand::{Eviction, Pins};
use super::ranking::{Ordered, Ranking};
use super::{Request, Space};

/// How fast scores follow.
const ALPHA: f64 = 0.05;

/// What earns credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credit {
    Chosen,
    NearPicks,
    RouterValue,
}

/// Exponential moving averages.
pub(super) struct Ema {
    credit: Credit,
    /// Loss of `ln S` a request.
    loss: f64,
    /// Tokens so far, times the loss.
    lost: f64,
    /// `ln S + lost`; minus infinity for a score of 0.
    score: Vec<f64>,
    residents: Ranking<Ordered>,
    /// Which members were credited by rank already.
    credited: Vec<u64>,
    now: u64,
}

impl Ema {
    pub(super) fn new(space: &Space, credit: Credit) -> Ema {
        let n = space.n_keys();
        Ema {
            credit,
            loss: -(1.0 - ALPHA).ln() / f64::from(space.requests_per_token.max(1)),
            lost: 0.0,
            score: vec![f64::NEG_INFINITY; n],
            residents: Ranking::new(n),
            credited: vec![0; n],
            now: 0,
        }
    }

    /// The score of an expert now.
    #[cfg(test)]
    pub(super) fn score(&self, key: u32) -> f64 {
        (self.score[key as usize] - self.lost).exp()
    }

    fn add(&mut self, key: u32, credit: f64) {
        let (old, new) = (self.score[key as usize], (ALPHA * credit).ln() + self.lost);
        let (high, low) = if old > new { (old, new) } else { (new, old) };
        let score = high + (low - high).exp().ln_1p();
        self.score[key as usize] = score;
        if self.residents.holds(key) {
            self.residents.set(key, Ordered(score));
        }
    }
}

impl Eviction for Ema {
    fn begin(&mut self, request: &Request<'_>) {
        self.now += 1;
        let used = request.n_expert_used as usize;
        if let Some(candidates) =
            request.candidates.filter(|_| request.n_tokens > 1 || self.credit != Credit::Chosen)
        {
            let single = request.n_tokens == 1;
            for token in candidates.tokens() {
                self.lost += self.loss;
                let mut best = None;
                for (rank, (key, value)) in token.enumerate() {
                    let chosen = if single { request.keys.contains(&key) } else { rank < used };
                    let best = *best.get_or_insert(value);
                    let credit = match self.credit {
                        _ if chosen => 1.0,
                        Credit::Chosen => break,
                        Credit::NearPicks if rank < used => 1.0,
                        Credit::NearPicks if rank < 2 * used => 0.5,
                        Credit::NearPicks if single => continue,
                        Credit::NearPicks => break,
                        Credit::RouterValue => 1.0 / (1.0 + f64::from((best - value).max(0.0))),
                    };
                    self.credited[key as usize] = self.now;
                    if credit.is_finite() && credit > 0.0 {
                        self.add(key, credit);
                    }
                }
            }
        } else {
            self.lost += self.loss * f64::from(request.n_tokens.max(1));
        }
        for key in request.keys {
            if self.credited[*key as usize] != self.now {
                self.add(*key, 1.0);
            }
        }
    }

    fn hit(&mut self, _key: u32) {}

    fn insert(&mut self, key: u32) {
        self.residents.set(key, Ordered(self.score[key as usize]));
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        self.residents.take_least(|key| pins.is_free(key))
    }

    fn clear(&mut self) {
        self.score.fill(f64::NEG_INFINITY);
        self.residents.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(keys: &[u32]) -> Request<'_> {
        Request { keys, n_tokens: 1, n_expert_used: 1, n_expert: 4, candidates: None }
    }

    #[test]
    fn score_of_expert_never_requested_again_decays_to_zero() {
        let mut ema = Ema::new(&Space::slots(4, 2, 1), Credit::Chosen);
        ema.begin(&request(&[3]));
        assert!((ema.score(3) - ALPHA).abs() < 1e-12);
        assert_eq!(ema.score(0), 0.0, "never touched");
        let mut last = ema.score(3);
        for _ in 0..10_000 {
            ema.begin(&request(&[1]));
            assert!(ema.score(3) < last || last == 0.0);
            last = ema.score(3);
        }
        assert!(last < 1e-200, "{last}");
        assert!((ema.score(1) - 1.0).abs() < 1e-9, "requested by every token: {}", ema.score(1));
    }

    #[test]
    fn score_follows_its_recurrence() {
        let mut ema = Ema::new(&Space::slots(4, 2, 1), Credit::Chosen);
        let mut expected = [0.0; 4];
        for step in 0..200_u32 {
            let key = step * step % 7 % 4;
            ema.begin(&request(&[key]));
            for (other, score) in (0..).zip(&mut expected) {
                *score = (1.0 - ALPHA) * *score + if other == key { ALPHA } else { 0.0 };
            }
            for (other, score) in (0..).zip(expected) {
                assert!((ema.score(other) - score).abs() < 1e-9, "step {step}, expert {other}");
            }
        }
    }
}
