//! `belady` and `belady-bypass`: the fewest misses that any cache could have which knew all that comes.
//!
//! `belady` has every member of a request in the cache while it is served, as policies that fill on demand have; a request
//! with more members than there is room for is streamed as far as it has to be. `belady-bypass` may use an expert without
//! a place for it, so it is the bound for policies that do not take every miss (`static`, `slru` with large ubatches,
//! `frequency-admission`). Both need experts of one size: with several sizes the question is NP-hard.
//!
//! Neither simulates evictions. A hit is a stretch of time, from the request before to this one, during which the expert
//! lies in one place of the cache. Stretches are taken in the order of their ends, a request itself being one that has to
//! be taken, and each that is taken goes to the place that was left last among those that were left before it begins. That
//! gives the most stretches that so many places can hold, within a request as between requests, and it needs to know
//! nothing but the past.

use super::{Policy, Request, Space};

/// The optimum.
pub(super) struct Belady {
    slots: usize,
    /// When places are left, ascending, and how many at that time. Requests are at even times, what lies between them at
    /// odd ones.
    free_from: Vec<(u64, usize)>,
    /// When each expert was requested last; 0 for never.
    last: Vec<u64>,
    now: u64,
    bypass: bool,
}

impl Belady {
    pub(super) fn new(space: &Space, bypass: bool) -> Belady {
        let slots = space.uniform_slots().unwrap_or(0);
        Belady { slots, free_from: vec![(0, slots)], last: vec![0; space.n_keys()], now: 0, bypass }
    }

    /// Takes the place that was left last among those that were left by `time`.
    fn take(&mut self, time: u64) -> bool {
        let Some(at) = self.free_from.partition_point(|(free, _)| *free <= time).checked_sub(1) else {
            return false;
        };
        match self.free_from[at].1 {
            0 => return false,
            1 if at > 0 => drop(self.free_from.remove(at)),
            _ => self.free_from[at].1 -= 1,
        }
        true
    }

    /// Leaves `count` places at `time`, which is not before any other.
    fn leave(&mut self, time: u64, count: usize) {
        match self.free_from.last_mut() {
            Some((last, places)) if *last == time => *places += count,
            _ => self.free_from.push((time, count)),
        }
    }
}

impl Policy for Belady {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        self.now += 2;
        let now = self.now;
        for &key in request.keys {
            let last = std::mem::replace(&mut self.last[key as usize], now);
            if last > 0 && self.take(last) {
                self.leave(now - 1, 1);
            } else {
                missed.push(key);
            }
        }
        if self.bypass || request.keys.len() > self.slots {
            return;
        }
        let mut members = request.keys.len();
        while members > 0 {
            let Some((_, places)) = self.free_from.last_mut() else { break };
            let taken = members.min(*places);
            *places -= taken;
            members -= taken;
            if *places == 0 && self.free_from.len() > 1 {
                self.free_from.pop();
            }
        }
        self.leave(now, request.keys.len());
    }

    /// What the cache holds is known only later.
    fn holds(&self, _key: u32) -> bool {
        false
    }

    fn clear(&mut self) {
        self.free_from.clear();
        self.free_from.push((0, self.slots));
        self.last.fill(0);
        self.now = 0;
    }
}
