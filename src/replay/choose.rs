//! Cache-aware routing, after "Mixture of Cache-Conditional Experts" (arXiv 2412.00099).
//!
//! A token goes to the experts with the greatest `z' = z + λ·Δ·m`: `z` is the router's value, `m` is 1 for an expert that is
//! in the cache or among the router's top `J`, else 0, and `Δ` is a range of router values. Of equal ones, the better rank
//! of the router wins. Weights are to come from `z`; here only the choice counts.
//!
//! Over a recorded trace the loop is open: the hidden states stay those of the plain routing, and only recorded candidates
//! can be chosen.

use crate::cache::Policy;
use crate::trace::NO_EXPERT;
use std::fmt;
use std::str::FromStr;

/// How a range of router values becomes `Δ`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaReading {
    /// Mean of `max z − min z` of the layer so far, each token counting one in a hundred.
    #[default]
    Ema99,
    /// The same, each token counting one in twenty.
    Ema95,
    /// The token's own range: its best expert less its last selected one.
    Token,
}

/// Settings of cache-aware routing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheAware {
    /// How much being in the cache counts; 0 is the plain routing.
    pub lambda: f64,
    /// Ranks that count as in the cache.
    pub top: u32,
    /// What `Δ` is.
    pub delta: DeltaReading,
}

/// Chooses the experts of the tokens of one layer.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    aware: CacheAware,
    mean_range: Option<f64>,
    ranked: Vec<(f64, u16)>,
}

/// One token's candidates in a layer.
#[derive(Clone, Copy)]
pub(super) struct TokenCandidates<'a> {
    pub(super) ids: &'a [u16],
    pub(super) values: &'a [f32],
    pub(super) z_min: f32,
    pub(super) n_expert_used: usize,
}

impl Chooser {
    pub(super) fn new(aware: CacheAware) -> Chooser {
        Chooser { aware, mean_range: None, ranked: Vec::new() }
    }

    /// Adds the token's experts to `chosen`.
    pub(super) fn choose(
        &mut self,
        token: TokenCandidates<'_>,
        cache: &dyn Policy,
        base: u32,
        chosen: &mut Vec<u16>,
    ) {
        let used = token.n_expert_used;
        let best = f64::from(token.values.first().copied().unwrap_or(0.0));
        let delta = match self.aware.delta {
            DeltaReading::Token => best - f64::from(token.values.get(used - 1).copied().unwrap_or(0.0)),
            DeltaReading::Ema99 => self.follow(best - f64::from(token.z_min), 0.01),
            DeltaReading::Ema95 => self.follow(best - f64::from(token.z_min), 0.05),
        };
        let boost = self.aware.lambda * delta;
        self.ranked.clear();
        for (rank, (&id, &value)) in token.ids.iter().zip(token.values).enumerate() {
            if id == NO_EXPERT {
                continue;
            }
            let near = rank < self.aware.top as usize || cache.holds(base + u32::from(id));
            self.ranked.push((f64::from(value) + if near { boost } else { 0.0 }, id));
        }
        // Stable, so that of equal ones the better rank comes first.
        self.ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        chosen.extend(self.ranked.iter().take(used).map(|(_, id)| *id));
    }

    fn follow(&mut self, range: f64, share: f64) -> f64 {
        let mean = self.mean_range.map_or(range, |mean| (1.0 - share) * mean + share * range);
        self.mean_range = Some(mean);
        mean
    }
}

impl DeltaReading {
    const NAMES: [(&'static str, DeltaReading); 3] =
        [("ema99", DeltaReading::Ema99), ("ema95", DeltaReading::Ema95), ("token", DeltaReading::Token)];

    /// The name.
    pub fn name(self) -> &'static str {
        DeltaReading::NAMES.iter().find(|(_, reading)| *reading == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for DeltaReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DeltaReading {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = DeltaReading::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, reading)| *reading).ok_or_else(|| "expected ema99, ema95 or token".to_owned())
    }
}
