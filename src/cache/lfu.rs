//! `lfu`: the expert with the fewest requests is evicted, of several the one whose last request is longest ago. Requests
//! are counted from the time when the cache was last emptied, and stay counted when an expert is evicted.

use super::demand::{Eviction, Pins};
use super::ranking::Ranking;

/// Least frequently used.
pub(super) struct Lfu {
    count: Vec<u64>,
    now: u64,
    residents: Ranking<(u64, u64)>,
}

impl Lfu {
    pub(super) fn new(n: usize) -> Lfu {
        Lfu { count: vec![0; n], now: 0, residents: Ranking::new(n) }
    }

    fn touch(&mut self, key: u32) {
        self.now += 1;
        self.count[key as usize] += 1;
        self.residents.set(key, (self.count[key as usize], self.now));
    }
}

impl Eviction for Lfu {
    fn hit(&mut self, key: u32) {
        self.touch(key);
    }

    fn insert(&mut self, key: u32) {
        // Counted by `admits`, whether or not there was room.
        self.now += 1;
        self.residents.set(key, (self.count[key as usize], self.now));
    }

    fn admits(&mut self, key: u32, _full: bool, _pins: &Pins) -> bool {
        self.count[key as usize] += 1;
        true
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        self.residents.take_least(|key| pins.is_free(key))
    }

    fn clear(&mut self) {
        self.count.fill(0);
        self.residents.clear();
    }
}
