//! `s3-fifo` (Yang et al., SOSP 2023): three queues, first in, first out. New experts come into the small queue, which has a
//! tenth of the room; those that are remembered in the ghost queue come into the main queue at once. Hits raise a counter
//! up to 3. Evicting from the small queue, when it has its tenth or the main queue is empty: the oldest goes to the main
//! queue when its counter is above 1, which begins at 0 again, and else is evicted and remembered. Evicting from the main
//! queue: the oldest goes to its end with a counter one lower when it is above 0, and else is evicted. The ghost queue
//! remembers as much as the main queue has room for. Members of the request go to the end of their queue as they are.

use super::Space;
use super::demand::{Eviction, Pins};
use super::list::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// S3-FIFO.
pub(super) struct S3Fifo {
    space: Space,
    queues: Lists<3>,
    uses: Vec<u8>,
    remembered: Vec<bool>,
    residents: usize,
}

impl S3Fifo {
    pub(super) fn new(space: Space) -> S3Fifo {
        let n = space.n_keys();
        S3Fifo { space, queues: Lists::new(n), uses: vec![0; n], remembered: vec![false; n], residents: 0 }
    }

    fn small_room(&self) -> u64 {
        self.space.capacity / 10
    }

    fn requeue(&mut self, key: u32, to: usize) {
        let size = self.space.size(key);
        self.queues.remove(key, size);
        self.queues.push_front(to, key, size);
    }

    fn forget(&mut self) {
        while self.queues.bytes(GHOST) > self.space.capacity - self.small_room() {
            let Some(oldest) = self.queues.back(GHOST) else { return };
            self.queues.remove(oldest, self.space.size(oldest));
        }
    }
}

impl Eviction for S3Fifo {
    fn hit(&mut self, key: u32) {
        let uses = &mut self.uses[key as usize];
        *uses = (*uses + 1).min(3);
    }

    fn admits(&mut self, key: u32, _full: bool, _pins: &Pins) -> bool {
        // Before the eviction, which may push it out of the ghost queue.
        self.remembered[key as usize] = self.queues.list_of(key) == Some(GHOST);
        true
    }

    fn insert(&mut self, key: u32) {
        let size = self.space.size(key);
        self.queues.remove(key, size);
        self.uses[key as usize] = 0;
        let queue = if self.remembered[key as usize] { MAIN } else { SMALL };
        self.queues.push_front(queue, key, size);
        self.residents += 1;
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        // Each resident moves at most five times before it is evicted: from small to main, and round with 3, 2, 1, 0.
        for _ in 0..=6 * self.residents {
            let small = self.queues.bytes(SMALL);
            let from_small = small > 0 && (small >= self.small_room() || self.queues.bytes(MAIN) == 0);
            let from = if from_small { SMALL } else { MAIN };
            let mut key = self.queues.back(from)?;
            if !pins.is_free(key) {
                if self.queues.back_to_front(from).any(|key| pins.is_free(key)) {
                    self.requeue(key, from);
                    continue;
                }
                // All of this queue are members.
                key = self.queues.back_to_front(SMALL + MAIN - from).find(|key| pins.is_free(*key))?;
            }
            let list = self.queues.list_of(key);
            let uses = self.uses[key as usize];
            if list == Some(SMALL) && uses > 1 {
                self.uses[key as usize] = 0;
                self.requeue(key, MAIN);
            } else if list == Some(MAIN) && uses > 0 {
                self.uses[key as usize] = uses - 1;
                self.requeue(key, MAIN);
            } else {
                let size = self.space.size(key);
                self.queues.remove(key, size);
                self.residents -= 1;
                if list == Some(SMALL) {
                    self.queues.push_front(GHOST, key, size);
                    self.forget();
                }
                return Some(key);
            }
        }
        None
    }

    fn clear(&mut self) {
        self.queues.clear();
        self.uses.fill(0);
        self.residents = 0;
    }
}
