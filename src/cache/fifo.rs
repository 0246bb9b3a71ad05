//! `fifo`: what came into the cache first is evicted first; hits change nothing.

use super::demand::{Eviction, Pins};
use std::collections::VecDeque;

/// First in, first out.
#[derive(Default)]
pub(super) struct Fifo {
    queue: VecDeque<u32>,
}

impl Eviction for Fifo {
    fn hit(&mut self, _key: u32) {}

    fn insert(&mut self, key: u32) {
        self.queue.push_back(key);
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        let at = self.queue.iter().position(|key| pins.is_free(*key))?;
        self.queue.remove(at)
    }

    fn clear(&mut self) {
        self.queue.clear();
    }
}
