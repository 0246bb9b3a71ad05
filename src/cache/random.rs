//! `random`: any resident that is not a member of the request is evicted, each with the same chance. The seed is
//! fixed, so that a replay gives the same numbers again.

use super::demand::{Eviction, Pins};
use crate::random::SplitMix;

/// Draws before the residents are looked through one by one.
const DRAWS: usize = 64;
const SEED: u64 = 0x6d6f_6573_6c69_6365;

/// Random eviction.
pub(super) struct Random {
    residents: Vec<u32>,
    random: SplitMix,
}

impl Random {
    pub(super) fn new() -> Random {
        Random { residents: Vec::new(), random: SplitMix(SEED) }
    }

    fn draw(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }
}

impl Eviction for Random {
    fn hit(&mut self, _key: u32) {}

    fn insert(&mut self, key: u32) {
        self.residents.push(key);
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        if self.residents.is_empty() {
            return None;
        }
        for _ in 0..DRAWS {
            let at = self.draw(self.residents.len());
            if pins.is_free(self.residents[at]) {
                return Some(self.residents.swap_remove(at));
            }
        }
        let free: Vec<usize> =
            (0..self.residents.len()).filter(|at| pins.is_free(self.residents[*at])).collect();
        let at = *free.get(self.draw(free.len().max(1)))?;
        Some(self.residents.swap_remove(at))
    }

    fn clear(&mut self) {
        self.residents.clear();
    }
}
