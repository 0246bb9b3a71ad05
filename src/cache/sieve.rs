//! `sieve` (Zhang et al., NSDI 2024): experts stand in a queue in the order in which they came, each with a mark that a hit
//! sets. A hand goes from the oldest to the newest: a marked expert loses its mark and stays where it is, the first without
//! a mark is evicted, and the hand stays there. Behind the newest it begins at the oldest again. It passes over members of
//! the request.

use super::demand::{Eviction, Pins};
use super::list::{Lists, NONE};

/// SIEVE.
pub(super) struct Sieve {
    queue: Lists<1>,
    marked: Vec<bool>,
    hand: u32,
    len: usize,
}

impl Sieve {
    pub(super) fn new(n: usize) -> Sieve {
        Sieve { queue: Lists::new(n), marked: vec![false; n], hand: NONE, len: 0 }
    }
}

impl Eviction for Sieve {
    fn hit(&mut self, key: u32) {
        self.marked[key as usize] = true;
    }

    fn insert(&mut self, key: u32) {
        self.marked[key as usize] = false;
        self.queue.push_front(0, key, 0);
        self.len += 1;
    }

    fn evict(&mut self, pins: &Pins) -> Option<u32> {
        let mut at = if self.hand == NONE { self.queue.back(0)? } else { self.hand };
        // After one round no free one is marked.
        for _ in 0..=2 * self.len {
            let next = self.queue.before(at);
            if pins.is_free(at) && !std::mem::replace(&mut self.marked[at as usize], false) {
                self.hand = next.unwrap_or(NONE);
                self.queue.remove(at, 0);
                self.len -= 1;
                return Some(at);
            }
            at = next.or_else(|| self.queue.back(0))?;
        }
        None
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.marked.fill(false);
        (self.hand, self.len) = (NONE, 0);
    }
}
