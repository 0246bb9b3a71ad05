//! Caches of experts, by policy: each in a file of its own that begins with its exact definition, all behind [`Policy`].
//!
//! What they have in common:
//! - A request is the set of experts that a layer needs at once: those of one token, or of all tokens of a ubatch.
//! - A member of the request that is being served is never evicted for another.
//! - Hits are served first, in the order of the request, then misses in ascending id.
//! - A miss goes into the cache, except where a policy says otherwise. When all that could be evicted are members of the
//!   request itself, as when a ubatch needs more experts than there is room for, the rest is streamed through.

mod admission;
mod arc;
mod belady;
mod class_lru;
mod demand;
mod ema;
mod fifo;
mod fixed;
mod kind;
mod lfu;
mod list;
mod lru;
mod random;
mod ranking;
mod s3_fifo;
mod sieve;
mod slru;

pub use kind::{PolicyKind, UnknownPolicy};
pub(crate) use slru::group_slots;

use crate::trace::{Batch, NO_EXPERT};
use std::ops::Range;
use std::sync::Arc;

/// The experts that share a cache, and the room in it.
#[derive(Clone, Debug)]
pub struct Space {
    /// Bytes of each expert, by key; 1 each where room is counted in experts.
    pub sizes: Arc<[u64]>,
    /// Room, in the same unit.
    pub capacity: u64,
    /// The size of every expert, when it is the same for all.
    pub uniform: Option<u64>,
    /// Requests that one token makes: layers that share the cache.
    pub requests_per_token: u32,
    /// Which layers have expert tensors of one shape, by key, and the slots of each: for [`PolicyKind::Slru`].
    pub groups: Arc<Groups>,
}

/// Experts by the shape of their tensors.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// The group of each key.
    pub of_key: Vec<u16>,
    /// Slots of each group.
    pub slots: Vec<u32>,
}

impl Space {
    /// Room for `capacity` of `n` experts of equal size.
    pub fn slots(n: usize, capacity: u32, requests_per_token: u32) -> Space {
        Space {
            sizes: vec![1; n].into(),
            capacity: capacity.into(),
            uniform: Some(1),
            requests_per_token,
            groups: Arc::new(Groups { of_key: vec![0; n], slots: vec![capacity] }),
        }
    }

    /// Experts that share the cache.
    pub fn n_keys(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of an expert.
    pub(crate) fn size(&self, key: u32) -> u64 {
        self.uniform.unwrap_or_else(|| self.sizes[key as usize])
    }

    /// Experts that fit, when all have one size.
    fn uniform_slots(&self) -> Option<usize> {
        let slots = self.uniform.map(|size| self.capacity / size.max(1))?;
        usize::try_from(slots).ok().map(|slots| slots.min(self.n_keys()))
    }
}

/// What a layer needs at once.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The experts, each once, in the order of their first appearance.
    pub keys: &'a [u32],
    /// Tokens that need them.
    pub n_tokens: u32,
    /// Experts that each of the tokens goes to.
    pub n_expert_used: u32,
    /// Experts of the layer.
    pub n_expert: u32,
    /// The tokens' candidates.
    pub candidates: Option<Candidates<'a>>,
}

/// The candidates of the tokens of a request, by the router alone.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Where they stand.
    pub batch: &'a Batch,
    /// The first row of the tokens.
    pub first: usize,
    /// The row behind the last.
    pub end: usize,
    /// Position of the layer among those of the trace.
    pub layer: usize,
    /// Layers of the trace.
    pub n_layers: usize,
    /// Candidates of each token and layer.
    pub width: usize,
    /// The key of the layer's expert 0.
    pub base: u32,
}

impl<'a> Candidates<'a> {
    fn place(&self, row: usize) -> Range<usize> {
        let begin = (row * self.n_layers + self.layer) * self.width;
        begin..begin + self.width
    }

    /// Of each token, its candidates as keys with their router values, best first.
    pub fn tokens(self) -> impl Iterator<Item = impl Iterator<Item = (u32, f32)> + 'a> + 'a {
        (self.first..self.end).map(move |row| {
            let place = self.place(row);
            let values = self.batch.values.get(place.clone()).unwrap_or_default();
            let values = values.iter().copied().chain(std::iter::repeat(f32::NAN));
            let ids = self.batch.ids[place].iter();
            ids.zip(values)
                .filter(|(id, _)| **id != NO_EXPERT)
                .map(move |(id, z)| (self.base + u32::from(*id), z))
        })
    }
}

/// Where an expert that was fetched ahead goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// To the end from which is evicted.
    Tail,
    /// Where one that was requested goes.
    Front,
}

/// A cache.
pub trait Policy: Send {
    /// Serves a request. Adds the members that were not in the cache to `missed`.
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>);

    /// Whether an expert is in the cache.
    fn holds(&self, key: u32) -> bool;

    /// Empties the cache.
    fn clear(&mut self);

    /// The warm-up is over: what was to be learnt from it is learnt.
    fn end_warmup(&mut self) {}

    /// Takes an expert that was fetched ahead, evicting none of `pinned`. False when it has no place.
    fn take_ahead(&mut self, _key: u32, _place: Ahead, _pinned: &[u32]) -> bool {
        false
    }
}
