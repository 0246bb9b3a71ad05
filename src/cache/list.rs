//! Ordered lists of keys, each key in one list at most.

/// No key.
pub(super) const NONE: u32 = u32::MAX;

/// Doubly linked lists over the keys `0..n`. The front is the end that was touched last.
#[derive(Clone, Debug)]
pub(super) struct Lists<const N: usize> {
    next: Vec<u32>,
    prev: Vec<u32>,
    of: Vec<u8>,
    front: [u32; N],
    back: [u32; N],
    bytes: [u64; N],
}

/// In no list.
const NOWHERE: u8 = u8::MAX;

impl<const N: usize> Lists<N> {
    pub(super) fn new(n: usize) -> Self {
        Lists {
            next: vec![NONE; n],
            prev: vec![NONE; n],
            of: vec![NOWHERE; n],
            front: [NONE; N],
            back: [NONE; N],
            bytes: [0; N],
        }
    }

    /// The list of a key.
    pub(super) fn list_of(&self, key: u32) -> Option<usize> {
        Some(usize::from(self.of[key as usize])).filter(|list| *list < N)
    }

    /// Sum of the sizes of a list's keys.
    pub(super) fn bytes(&self, list: usize) -> u64 {
        self.bytes[list]
    }

    pub(super) fn back(&self, list: usize) -> Option<u32> {
        Some(self.back[list]).filter(|key| *key != NONE)
    }

    /// The key in front of `key`.
    pub(super) fn before(&self, key: u32) -> Option<u32> {
        Some(self.prev[key as usize]).filter(|key| *key != NONE)
    }

    /// The keys of a list, from the back on.
    pub(super) fn back_to_front(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.back(list), |key| self.before(*key))
    }

    pub(super) fn push_front(&mut self, list: usize, key: u32, size: u64) {
        let front = self.front[list];
        self.next[key as usize] = front;
        self.prev[key as usize] = NONE;
        match front {
            NONE => self.back[list] = key,
            front => self.prev[front as usize] = key,
        }
        self.front[list] = key;
        self.of[key as usize] = list as u8;
        self.bytes[list] += size;
    }

    /// Takes a key out of its list, which it gives.
    pub(super) fn remove(&mut self, key: u32, size: u64) -> Option<usize> {
        let list = self.list_of(key)?;
        let (next, prev) = (self.next[key as usize], self.prev[key as usize]);
        match prev {
            NONE => self.front[list] = next,
            prev => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.back[list] = prev,
            next => self.prev[next as usize] = prev,
        }
        self.of[key as usize] = NOWHERE;
        self.bytes[list] -= size;
        Some(list)
    }

    pub(super) fn clear(&mut self) {
        self.of.fill(NOWHERE);
        self.front = [NONE; N];
        self.back = [NONE; N];
        self.bytes = [0; N];
    }
}
