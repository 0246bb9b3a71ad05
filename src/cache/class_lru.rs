//! `class-lru`: residents are in three classes, by their requests since they came into the cache: one, two or three, four
//! or more. The least recently used of the lowest class is evicted.

use super::demand::{Eviction, Pins};
use super::ranking::Ranking;

/// Least recently used, by class.
pub(super) struct ClassLru {
    uses: Vec<u32>,
    now: u64,
    residents: Ranking<(u8, u64)>,
}

impl ClassLru {
    pub(super) fn new(n: usize) -> ClassLru {
        ClassLru { uses: vec![0; n], now: 0, residents: Ranking::new(n) }
    }

    fn touch(&mut self, key: u32, uses: u32) {
        self.now += 1;
        self.uses[key as usize] = uses;
        let class = match uses {
            0..=1 => 0,
            2..=3 => 1,
            _ => 2,
        };
        self.residents.set(key, (class, self.now));
    }
}

impl Eviction for ClassLru {
    fn hit(&mut self, key: u32) {
        self.touch(key, self.uses[key as usize].saturating_add(1));
    }

    fn insert(&mut self, key: u32) {
        self.touch(key, 1);
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        self.residents.take_least(|key| pins.is_free(key))
    }

    fn clear(&mut self) {
        self.residents.clear();
    }
}
