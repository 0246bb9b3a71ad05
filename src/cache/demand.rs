//! What all policies share that fill the cache on demand and differ in what they evict.

use super::{Policy, Request, Space};

/// Chooses what is evicted.
pub(super) trait Eviction: Send {
    /// A request begins.
    fn begin(&mut self, _request: &Request<'_>) {}

    /// A member of the request is in the cache.
    fn hit(&mut self, key: u32);

    /// A member is not in the cache. False streams it past the cache; `full` says whether something would have to go
    /// for it.
    fn admits(&mut self, _key: u32, _full: bool, _pins: &Pins) -> bool {
        true
    }

    /// A key comes into the cache.
    fn insert(&mut self, key: u32);

    /// Takes a key out of the cache that is not pinned.
    fn evict(&mut self, pins: &Pins) -> Option<u32>;

    /// The cache is emptied.
    fn clear(&mut self);
}

/// The members of the request that is being served.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    stamp: Vec<u64>,
    now: u64,
}

impl Pins {
    pub(super) fn new(n: usize) -> Pins {
        Pins { stamp: vec![0; n], now: 0 }
    }

    pub(super) fn set(&mut self, keys: &[u32]) {
        self.now += 1;
        keys.iter().for_each(|key| self.stamp[*key as usize] = self.now);
    }

    pub(super) fn is_free(&self, key: u32) -> bool {
        self.stamp[key as usize] != self.now
    }
}

/// A cache filled on demand.
pub(super) struct Demand<E> {
    space: Space,
    used: u64,
    resident: Vec<bool>,
    pins: Pins,
    misses: Vec<u32>,
    eviction: E,
}

impl<E: Eviction> Demand<E> {
    pub(super) fn new(space: Space, eviction: E) -> Demand<E> {
        let n = space.n_keys();
        Demand { space, used: 0, resident: vec![false; n], pins: Pins::new(n), misses: Vec::new(), eviction }
    }

    /// Makes room for `size` more; false when what is left is pinned.
    fn make_room(&mut self, size: u64) -> bool {
        while self.used + size > self.space.capacity {
            let Some(victim) = self.eviction.evict(&self.pins) else { return false };
            self.resident[victim as usize] = false;
            self.used -= self.space.size(victim);
        }
        true
    }
}

impl<E: Eviction> Policy for Demand<E> {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        self.pins.set(request.keys);
        self.eviction.begin(request);
        self.misses.clear();
        for key in request.keys {
            match self.resident[*key as usize] {
                true => self.eviction.hit(*key),
                false => self.misses.push(*key),
            }
        }
        self.misses.sort_unstable();
        for at in 0..self.misses.len() {
            let key = self.misses[at];
            missed.push(key);
            let size = self.space.size(key);
            let full = self.used + size > self.space.capacity;
            if size <= self.space.capacity
                && self.eviction.admits(key, full, &self.pins)
                && self.make_room(size)
            {
                self.resident[key as usize] = true;
                self.used += size;
                self.eviction.insert(key);
            }
        }
    }

    fn holds(&self, key: u32) -> bool {
        self.resident[key as usize]
    }

    fn clear(&mut self) {
        self.used = 0;
        self.resident.fill(false);
        self.eviction.clear();
    }
}
