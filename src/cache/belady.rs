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
    /// When each place is left, ascending. Requests are at even times, what lies between them at odd ones.
    free_from: Vec<u64>,
    /// When each expert was requested last; 0 for never.
    last: Vec<u64>,
    now: u64,
    bypass: bool,
}

impl Belady {
    pub(super) fn new(space: &Space, bypass: bool) -> Belady {
        let slots = space.uniform_slots().unwrap_or(0);
        Belady { free_from: vec![0; slots], last: vec![0; space.n_keys()], now: 0, bypass }
    }
}

impl Policy for Belady {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        self.now += 2;
        let now = self.now;
        for &key in request.keys {
            let last = std::mem::replace(&mut self.last[key as usize], now);
            let places = self.free_from.partition_point(|free| *free <= last);
            if last == 0 || places == 0 {
                missed.push(key);
                continue;
            }
            self.free_from.copy_within(places.., places - 1);
            if let Some(place) = self.free_from.last_mut() {
                *place = now - 1;
            }
        }
        let slots = self.free_from.len();
        if !self.bypass && request.keys.len() <= slots {
            self.free_from[slots - request.keys.len()..].fill(now);
        }
    }

    /// What the cache holds is known only later.
    fn holds(&self, _key: u32) -> bool {
        false
    }

    fn clear(&mut self) {
        self.free_from.fill(0);
        self.last.fill(0);
        self.now = 0;
    }
}
