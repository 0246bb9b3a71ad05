//! What can be said before replaying.

use super::{Capacity, RunSpec};
use crate::trace::TraceMeta;
use crate::units::ByteCount;
use std::fmt;

/// Bytes of all experts that one token goes to.
pub fn working_set(meta: &TraceMeta) -> u64 {
    meta.layers.iter().map(|layer| layer.bytes_per_expert() * u64::from(layer.n_expert_used)).sum()
}

impl RunSpec {
    /// Whether all that a token needs fits at once.
    pub fn holds_a_token(&self, meta: &TraceMeta) -> bool {
        match self.capacity {
            Capacity::Experts(_) => true,
            Capacity::Bytes(bytes) => bytes >= working_set(meta),
            Capacity::Slots(n) => {
                u64::from(n) >= meta.layers.iter().map(|layer| u64::from(layer.n_expert_used)).sum::<u64>()
            }
        }
    }
}

/// A cache that cannot hold what one token needs over all layers: by the time that a layer comes again, an LRU has evicted
/// all that it had of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    capacity: Capacity,
    needed: u64,
    experts: u64,
}

impl Guard {
    /// The guard of a run, when there is something to say.
    pub fn of(spec: &RunSpec, meta: &TraceMeta) -> Option<Guard> {
        let experts = meta.layers.iter().map(|layer| u64::from(layer.n_expert_used)).sum();
        (!spec.holds_a_token(meta)).then(|| Guard {
            capacity: spec.capacity,
            needed: working_set(meta),
            experts,
        })
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, experts) = (self.capacity, self.experts);
        let needed = if self.needed > 0 { format!(" ({})", ByteCount(self.needed)) } else { String::new() };
        write!(
            f,
            "a cache of {capacity} for all layers together does not hold the {experts} experts of one token{needed}: lru and fifo will score 0 % in decode, since each layer's experts are gone before it comes again; policies that keep some of them score more"
        )
    }
}
