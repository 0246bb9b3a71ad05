//! `slru`: the segmented LRU of llama.cpp's own expert cache (`moe_cache_size`), step by step.
//!
//! - Layers whose expert tensors have the same shapes share slots. All slots begin on probation, empty ones first.
//! - Hits, in the order of first appearance, move to the recent end of the protected segment; when more than half of all
//!   slots are protected, the oldest protected one goes to the recent end of probation.
//! - Then misses, in ascending id, take the oldest slot that holds no member of the request, from probation and else from
//!   the protected segment, and go to the recent end of probation.
//! - A ubatch of more than 32 tokens, or one that may need more experts than there are slots (its tokens times the experts
//!   of each, or all of the layer), passes by the cache: what is in it is read from there, and nothing of it changes.

use super::list::NONE;
use super::{Policy, Request, Space};

/// Tokens of a ubatch that still goes through the cache.
const MAX_BATCH: u32 = 32;
const PROBATION: usize = 0;
const PROTECTED: usize = 1;

/// llama.cpp's segmented LRU.
pub(super) struct Slru {
    groups: Vec<Group>,
    of_key: std::sync::Arc<super::Groups>,
    /// The slot of each key.
    slot: Vec<u32>,
    pinned: Vec<u64>,
    now: u64,
    misses: Vec<u32>,
}

/// The slots of layers of one shape.
struct Group {
    key: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    protected: Vec<bool>,
    n_protected: usize,
    head: [u32; 2],
    tail: [u32; 2],
}

/// Slots that llama.cpp makes of a budget for tensors with slabs of these bytes: it has one more slab of each allocated.
pub(crate) fn group_slots(slabs: &[u64], budget: u64, n_keys: u64) -> u32 {
    let slot: u64 = slabs.iter().sum();
    let slots = (budget / slot.max(1)).saturating_sub(1).min(n_keys);
    u32::try_from(slots).unwrap_or(u32::MAX)
}

impl Group {
    fn new(n: u32) -> Group {
        let slots = n as usize;
        let mut group = Group {
            key: vec![NONE; slots],
            next: vec![NONE; slots],
            prev: vec![NONE; slots],
            protected: vec![false; slots],
            n_protected: 0,
            head: [NONE; 2],
            tail: [NONE; 2],
        };
        (0..n).for_each(|slot| group.append(slot, PROBATION));
        group
    }

    fn append(&mut self, slot: u32, segment: usize) {
        let tail = self.tail[segment];
        self.prev[slot as usize] = tail;
        self.next[slot as usize] = NONE;
        match tail {
            NONE => self.head[segment] = slot,
            tail => self.next[tail as usize] = slot,
        }
        self.tail[segment] = slot;
    }

    /// Moves a slot to the recent end of a segment.
    fn move_to(&mut self, slot: u32, segment: usize) {
        let from = usize::from(self.protected[slot as usize]);
        let (next, prev) = (self.next[slot as usize], self.prev[slot as usize]);
        match prev {
            NONE => self.head[from] = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tail[from] = prev,
            next => self.prev[next as usize] = prev,
        }
        self.append(slot, segment);
        self.protected[slot as usize] = segment == PROTECTED;
        self.n_protected = self.n_protected + segment - from;
    }

    fn touch(&mut self, slot: u32) {
        self.move_to(slot, PROTECTED);
        if self.n_protected > self.key.len() / 2 {
            self.move_to(self.head[PROTECTED], PROBATION);
        }
    }

    fn victim(&self, free: impl Fn(u32) -> bool) -> Option<u32> {
        let from = |segment: usize| {
            let slot = |slot: u32| Some(slot).filter(|slot| *slot != NONE);
            std::iter::successors(slot(self.head[segment]), move |at| slot(self.next[*at as usize]))
        };
        from(PROBATION).chain(from(PROTECTED)).find(|slot| {
            let key = self.key[*slot as usize];
            key == NONE || free(key)
        })
    }
}

impl Slru {
    pub(super) fn new(space: &Space) -> Slru {
        let n = space.n_keys();
        Slru {
            groups: space.groups.slots.iter().map(|slots| Group::new(*slots)).collect(),
            of_key: space.groups.clone(),
            slot: vec![NONE; n],
            pinned: vec![0; n],
            now: 0,
            misses: Vec::new(),
        }
    }
}

impl Policy for Slru {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        let Some(first) = request.keys.first() else { return };
        let group = &mut self.groups[usize::from(self.of_key.of_key[*first as usize])];
        let most = u64::from(request.n_tokens) * u64::from(request.n_expert_used);
        let bypass = request.n_tokens > MAX_BATCH
            || most.min(request.n_expert.into()) > group.key.len() as u64
            || request.keys.len() > group.key.len();
        if bypass {
            missed.extend(request.keys.iter().filter(|key| self.slot[**key as usize] == NONE));
            return;
        }
        self.now += 1;
        self.misses.clear();
        for key in request.keys {
            self.pinned[*key as usize] = self.now;
        }
        for key in request.keys {
            match self.slot[*key as usize] {
                NONE => self.misses.push(*key),
                slot => group.touch(slot),
            }
        }
        self.misses.sort_unstable();
        missed.extend_from_slice(&self.misses);
        for &key in &self.misses {
            let victim = group.victim(|key| self.pinned[key as usize] != self.now);
            let Some(slot) = victim else { return };
            if let Some(old) = self.slot.get_mut(group.key[slot as usize] as usize) {
                *old = NONE;
            }
            group.key[slot as usize] = key;
            self.slot[key as usize] = slot;
            group.move_to(slot, PROBATION);
        }
    }

    fn holds(&self, key: u32) -> bool {
        self.slot[key as usize] != NONE
    }

    fn clear(&mut self) {
        self.slot.fill(NONE);
        for group in &mut self.groups {
            *group = Group::new(group.key.len() as u32);
        }
    }
}
