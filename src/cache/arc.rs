//! `arc` (Megiddo and Modha, FAST 2003): residents that were requested once since they came (T1) and more often (T2), each
//! least recently used last, and as much again of evicted ones (B1, B2). A miss that B1 remembers raises the room `p` that
//! T1 is to have by `max(1, |B2|/|B1|)`; one that B2 remembers lowers it by `max(1, |B1|/|B2|)`; both come into T2, all
//! others into T1. Evicted is the last of T1, into B1, when T1 has more than `p`, or as much while B2 remembers what is
//! coming; else the last of T2, into B2. Where these are members of the request, the next of the same list goes, and when
//! all of it are, one of the other. T1 and B1 together hold no more than the cache, all four no more than twice as much.
//! Sizes are in units of an expert; where experts differ in size, in bytes.

use super::Space;
use super::demand::{Eviction, Pins};
use super::list::Lists;

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// Adaptive replacement cache.
pub(super) struct Arc {
    space: Space,
    lists: Lists<4>,
    /// Room for T1.
    p: f64,
    /// Where the key that is coming is remembered.
    coming: Option<usize>,
}

impl Arc {
    pub(super) fn new(space: Space) -> Arc {
        let n = space.n_keys();
        Arc { space, lists: Lists::new(n), p: 0.0, coming: None }
    }

    fn requeue(&mut self, key: u32, to: usize) {
        let size = self.space.size(key);
        self.lists.remove(key, size);
        self.lists.push_front(to, key, size);
    }

    fn forget(&mut self, list: usize) -> bool {
        let Some(last) = self.lists.back(list) else { return false };
        self.lists.remove(last, self.space.size(last));
        true
    }
}

impl Eviction for Arc {
    fn hit(&mut self, key: u32) {
        self.requeue(key, T2);
    }

    fn admits(&mut self, key: u32, _full: bool, _pins: &Pins) -> bool {
        self.coming = self.lists.list_of(key);
        let (b1, b2) = (self.lists.bytes(B1) as f64, self.lists.bytes(B2) as f64);
        let unit = self.space.size(key) as f64;
        match self.coming {
            Some(B1) => self.p = (self.p + unit * (b2 / b1).max(1.0)).min(self.space.capacity as f64),
            Some(B2) => self.p = (self.p - unit * (b1 / b2).max(1.0)).max(0.0),
            _ => {}
        }
        true
    }

    fn insert(&mut self, key: u32) {
        let to = if self.coming.is_some() { T2 } else { T1 };
        self.requeue(key, to);
        let capacity = self.space.capacity;
        let lists = |arc: &Arc, which: &[usize]| which.iter().map(|list| arc.lists.bytes(*list)).sum::<u64>();
        while lists(self, &[T1, B1]) > capacity && self.forget(B1) {}
        while lists(self, &[T1, T2, B1, B2]) > 2 * capacity && (self.forget(B2) || self.forget(B1)) {}
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        let t1 = self.lists.bytes(T1) as f64;
        let first = t1 > 0.0 && (t1 > self.p || (t1 >= self.p && self.coming == Some(B2)));
        let order = if first { [T1, T2] } else { [T2, T1] };
        let key =
            order.iter().find_map(|list| self.lists.back_to_front(*list).find(|key| pins.is_free(*key)))?;
        let to = if self.lists.list_of(key) == Some(T1) { B1 } else { B2 };
        self.requeue(key, to);
        Some(key)
    }

    fn clear(&mut self) {
        self.lists.clear();
        self.p = 0.0;
        self.coming = None;
    }
}
