//! `frequency-admission`: as `lru`, but a miss comes into a full cache only when it was requested more often than the one
//! that would go for it; else it is streamed. Requests are counted for all experts, resident or not; when there are ten
//! times as many as experts that share the cache, all counts are halved.

use super::demand::{Eviction, Pins};
use super::list::Lists;

/// Requests an expert, on average, after which counts are halved.
const SAMPLE: u64 = 10;

/// LRU behind a count.
pub(super) struct Admission {
    order: Lists<1>,
    count: Vec<u32>,
    requests: u64,
}

impl Admission {
    pub(super) fn new(n: usize) -> Admission {
        Admission { order: Lists::new(n), count: vec![0; n], requests: 0 }
    }

    fn count(&mut self, key: u32) {
        self.count[key as usize] += 1;
        self.requests += 1;
        if self.requests >= SAMPLE * self.count.len() as u64 {
            self.count.iter_mut().for_each(|count| *count /= 2);
            self.requests /= 2;
        }
    }

    fn victim(&self, pins: &Pins) -> Option<u32> {
        self.order.back_to_front(0).find(|key| pins.is_free(*key))
    }
}

impl Eviction for Admission {
    fn hit(&mut self, key: u32) {
        self.count(key);
        self.order.remove(key, 0);
        self.order.push_front(0, key, 0);
    }

    fn admits(&mut self, key: u32, full: bool, pins: &Pins) -> bool {
        self.count(key);
        !full
            || self.victim(pins).is_some_and(|victim| self.count[key as usize] > self.count[victim as usize])
    }

    fn insert(&mut self, key: u32) {
        self.order.push_front(0, key, 0);
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        let victim = self.victim(pins)?;
        self.order.remove(victim, 0);
        Some(victim)
    }

    fn clear(&mut self) {
        self.order.clear();
        self.count.fill(0);
        self.requests = 0;
    }
}
