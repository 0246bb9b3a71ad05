//! The policies by name.

use super::demand::Demand;
use super::ema::Credit;
use super::{
    Policy, Space, admission, arc, belady, class_lru, ema, fifo, fixed, lfu, lru, random, s3_fifo, sieve,
    slru,
};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A policy. The file of each begins with its exact definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PolicyKind {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Least frequently used.
    Lfu,
    /// Any.
    Random,
    /// The most used of the warm-up.
    Static,
    /// llama.cpp's segmented LRU.
    Slru,
    /// LRU within classes of use.
    ClassLru,
    /// Exponential moving average of the choices.
    Ema,
    /// The same, with credit for those that were near.
    NearPickEma,
    /// The same, with credit by router value.
    InverseRouterEma,
    /// Adaptive replacement cache.
    Arc,
    /// S3-FIFO.
    S3Fifo,
    /// SIEVE.
    Sieve,
    /// LRU behind a count.
    FrequencyAdmission,
    /// The optimum.
    Belady,
    /// The optimum when an expert may be used without a place.
    BeladyBypass,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name:?} is not a policy; they are {}", PolicyKind::names().join(", "))]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
}

impl PolicyKind {
    /// All, in the order in which they are listed.
    pub const ALL: [PolicyKind; 16] = [
        PolicyKind::Lru,
        PolicyKind::Fifo,
        PolicyKind::Lfu,
        PolicyKind::Random,
        PolicyKind::Static,
        PolicyKind::Slru,
        PolicyKind::ClassLru,
        PolicyKind::Ema,
        PolicyKind::NearPickEma,
        PolicyKind::InverseRouterEma,
        PolicyKind::Arc,
        PolicyKind::S3Fifo,
        PolicyKind::Sieve,
        PolicyKind::FrequencyAdmission,
        PolicyKind::Belady,
        PolicyKind::BeladyBypass,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Lru => "lru",
            PolicyKind::Fifo => "fifo",
            PolicyKind::Lfu => "lfu",
            PolicyKind::Random => "random",
            PolicyKind::Static => "static",
            PolicyKind::Slru => "slru",
            PolicyKind::ClassLru => "class-lru",
            PolicyKind::Ema => "ema",
            PolicyKind::NearPickEma => "near-pick-ema",
            PolicyKind::InverseRouterEma => "inverse-router-ema",
            PolicyKind::Arc => "arc",
            PolicyKind::S3Fifo => "s3-fifo",
            PolicyKind::Sieve => "sieve",
            PolicyKind::FrequencyAdmission => "frequency-admission",
            PolicyKind::Belady => "belady",
            PolicyKind::BeladyBypass => "belady-bypass",
        }
    }

    /// All names.
    pub fn names() -> Vec<&'static str> {
        PolicyKind::ALL.iter().map(|kind| kind.name()).collect()
    }

    /// Whether it knows what comes.
    pub fn is_optimum(self) -> bool {
        matches!(self, PolicyKind::Belady | PolicyKind::BeladyBypass)
    }

    /// Whether every miss comes into the cache while there is a place that may be had for it.
    pub fn fills_on_demand(self) -> bool {
        !matches!(
            self,
            PolicyKind::Static | PolicyKind::Slru | PolicyKind::FrequencyAdmission | PolicyKind::BeladyBypass
        )
    }

    /// An empty cache.
    pub fn build(self, space: Space) -> Box<dyn Policy> {
        let n = space.n_keys();
        match self {
            PolicyKind::Lru => Box::new(lru::Lru::new(space)),
            PolicyKind::Fifo => Box::new(Demand::new(space, fifo::Fifo::default())),
            PolicyKind::Lfu => Box::new(Demand::new(space, lfu::Lfu::new(n))),
            PolicyKind::Random => Box::new(Demand::new(space, random::Random::new())),
            PolicyKind::Static => Box::new(fixed::Fixed::new(space)),
            PolicyKind::Slru => Box::new(slru::Slru::new(&space)),
            PolicyKind::ClassLru => Box::new(Demand::new(space, class_lru::ClassLru::new(n))),
            PolicyKind::Ema | PolicyKind::NearPickEma | PolicyKind::InverseRouterEma => {
                let credit = match self {
                    PolicyKind::Ema => Credit::Chosen,
                    PolicyKind::NearPickEma => Credit::NearPicks,
                    _ => Credit::RouterValue,
                };
                let ema = ema::Ema::new(&space, credit);
                Box::new(Demand::new(space, ema))
            }
            PolicyKind::Arc => Box::new(Demand::new(space.clone(), arc::Arc::new(space))),
            PolicyKind::S3Fifo => Box::new(Demand::new(space.clone(), s3_fifo::S3Fifo::new(space))),
            PolicyKind::Sieve => Box::new(Demand::new(space, sieve::Sieve::new(n))),
            PolicyKind::FrequencyAdmission => Box::new(Demand::new(space, admission::Admission::new(n))),
            PolicyKind::Belady | PolicyKind::BeladyBypass => {
                Box::new(belady::Belady::new(&space, self == PolicyKind::BeladyBypass))
            }
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = PolicyKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}
