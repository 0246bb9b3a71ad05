//! `lru`: the expert whose last request is longest ago is evicted.
//!
//! The experts of a token are requested in the order of their rank, so that the last of them was used last. Those of a
//! ubatch are requested at once, and keep the order that they had before, those that were never requested behind the others
//! and in ascending id; when they are more than there is room for, the first in that order stay. With that the cache of
//! any capacity holds the first experts of one and the same list, and [`crate::replay::LruCurve`] is exact.

use super::list::NONE;
use super::{Ahead, Policy, Request, Space};

/// Least recently used.
pub(super) struct Lru {
    space: Space,
    nodes: Vec<Node>,
    /// Members of a request of several tokens.
    members: Vec<bool>,
    front: u32,
    back: u32,
    /// The last key of the list that is in the cache.
    edge: u32,
    used: u64,
    order: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    prev: u32,
    listed: bool,
    resident: bool,
}

const NODE: Node = Node { next: NONE, prev: NONE, listed: false, resident: false };

impl Lru {
    pub(super) fn new(space: Space) -> Lru {
        let n = space.n_keys();
        Lru {
            space,
            nodes: vec![NODE; n],
            members: vec![false; n],
            front: NONE,
            back: NONE,
            edge: NONE,
            used: 0,
            order: Vec::new(),
        }
    }

    fn unlink(&mut self, key: u32) {
        let Node { next, prev, listed, resident } = self.nodes[key as usize];
        if !listed {
            return;
        }
        if resident {
            self.used -= self.space.size(key);
        }
        if self.edge == key {
            self.edge = prev;
        }
        match prev {
            NONE => self.front = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.back = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    fn push_front(&mut self, key: u32, resident: bool) {
        self.nodes[key as usize] = Node { next: self.front, prev: NONE, listed: true, resident };
        match self.front {
            NONE => self.back = key,
            front => self.nodes[front as usize].prev = key,
        }
        self.front = key;
    }

    /// Puts the members of a request into the order that they have: that of the list, and then of their ids.
    fn sort(&mut self, keys: &[u32], order: &mut Vec<u32>) {
        order.clear();
        keys.iter().for_each(|key| self.members[*key as usize] = true);
        let mut at = self.front;
        while at != NONE && order.len() < keys.len() {
            if std::mem::take(&mut self.members[at as usize]) {
                order.push(at);
            }
            at = self.nodes[at as usize].next;
        }
        let known = order.len();
        order.extend(keys.iter().filter(|key| std::mem::take(&mut self.members[**key as usize])));
        order[known..].sort_unstable();
    }

    /// Lets the last ones go until there is room for `size` more.
    fn make_room(&mut self, size: u64) {
        while self.edge != NONE && self.used + size > self.space.capacity {
            let node = &mut self.nodes[self.edge as usize];
            node.resident = false;
            self.used -= self.space.size(self.edge);
            self.edge = node.prev;
        }
    }
}

impl Policy for Lru {
    fn request(&mut self, request: &Request<'_>, missed: &mut Vec<u32>) {
        let mut need = 0;
        for &key in request.keys {
            if !self.nodes[key as usize].resident {
                missed.push(key);
            }
            need += self.space.size(key);
        }
        let mut order = std::mem::take(&mut self.order);
        let single = request.n_tokens == 1 && need <= self.space.capacity;
        if !single {
            self.sort(request.keys, &mut order);
        }
        for &key in request.keys {
            self.unlink(key);
        }
        self.make_room(need);
        if single {
            for &key in request.keys {
                self.push_front(key, true);
                if self.edge == NONE {
                    self.edge = key;
                }
            }
            self.used += need;
            self.order = order;
            return;
        }
        let mut resident = 0;
        for &key in &order {
            let size = self.space.size(key);
            if self.used + size > self.space.capacity {
                break;
            }
            self.used += size;
            resident += 1;
        }
        for (at, &key) in order.iter().enumerate().rev() {
            self.push_front(key, at < resident);
        }
        // Others are resident only when all members are.
        if self.edge == NONE && resident > 0 {
            self.edge = order[resident - 1];
        }
        self.order = order;
    }

    fn holds(&self, key: u32) -> bool {
        self.nodes[key as usize].resident
    }

    fn clear(&mut self) {
        self.nodes.fill(NODE);
        (self.front, self.back, self.edge, self.used) = (NONE, NONE, NONE, 0);
    }

    fn take_ahead(&mut self, key: u32, place: Ahead, pinned: &[u32]) -> bool {
        let size = self.space.size(key);
        if self.nodes[key as usize].resident || size > self.space.capacity {
            return false;
        }
        while self.used + size > self.space.capacity {
            if self.edge == NONE || pinned.contains(&self.edge) {
                return false;
            }
            // One at a time, since the next may be pinned.
            let node = &mut self.nodes[self.edge as usize];
            node.resident = false;
            self.used -= self.space.size(self.edge);
            self.edge = node.prev;
        }
        self.unlink(key);
        self.used += size;
        match (place, self.edge) {
            (Ahead::Front, _) | (_, NONE) => {
                self.push_front(key, true);
                if self.edge == NONE {
                    self.edge = key;
                }
            }
            (Ahead::Tail, edge) => {
                let next = self.nodes[edge as usize].next;
                self.nodes[key as usize] = Node { next, prev: edge, listed: true, resident: true };
                self.nodes[edge as usize].next = key;
                match next {
                    NONE => self.back = key,
                    next => self.nodes[next as usize].prev = key,
                }
                self.edge = key;
            }
        }
        true
    }
}
