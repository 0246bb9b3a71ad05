//! `static`: the experts with the most requests during the warm-up, as many as there is room for, are in the cache from
//! its end on and stay; of equal ones, those of lower id. Nothing is in the cache before. So the set is chosen on one part
//! of the trace and measured on the other. It outlasts the sessions.

use super::{Policy, Request, Space};

/// A set that never changes.
pub(super) struct Fixed {
    space: Space,
    count: Vec<u64>,
    resident: Vec<bool>,
    chosen: bool,
}

impl Fixed {
    pub(super) fn new(space: Space) -> Fixed {
        let n = space.n_keys();
        Fixed { space, count: vec![0; n], resident: vec![false; n], chosen: false }
    }
}

impl Policy for Fixed {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        for key in request.keys {
            if !self.chosen {
                self.count[*key as usize] += 1;
            }
            if !self.resident[*key as usize] {
                missed.push(*key);
            }
        }
    }

    fn holds(&self, key: u32) -> bool {
        self.resident[key as usize]
    }

    fn clear(&mut self) {}

    fn end_warmup(&mut self) {
        if std::mem::replace(&mut self.chosen, true) {
            return;
        }
        let mut keys: Vec<u32> =
            (0..self.count.len() as u32).filter(|key| self.count[*key as usize] > 0).collect();
        keys.sort_by_key(|key| (std::cmp::Reverse(self.count[*key as usize]), *key));
        let mut room = self.space.capacity;
        for key in keys {
            let size = self.space.size(key);
            if size <= room {
                room -= size;
                self.resident[key as usize] = true;
            }
        }
    }
}
