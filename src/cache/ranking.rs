//! Keys in the order of a score.

use std::collections::BTreeSet;

/// A set of keys by a score, whose order is total; the least comes first.
#[derive(Clone, Debug)]
pub(super) struct Ranking<S> {
    set: BTreeSet<(S, u32)>,
    score: Vec<Option<S>>,
}

impl<S: Ord + Copy> Ranking<S> {
    pub(super) fn new(n: usize) -> Self {
        Ranking { set: BTreeSet::new(), score: vec![None; n] }
    }

    pub(super) fn holds(&self, key: u32) -> bool {
        self.score[key as usize].is_some()
    }

    /// Puts a key in, or gives it another score.
    pub(super) fn set(&mut self, key: u32, score: S) {
        if let Some(old) = self.score[key as usize].replace(score) {
            self.set.remove(&(old, key));
        }
        self.set.insert((score, key));
    }

    /// Takes the least key out that is `free`.
    pub(super) fn take_least(&mut self, free: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.set.iter().find(|(_, key)| free(*key)).copied()?;
        self.set.remove(&found);
        self.score[found.1 as usize] = None;
        Some(found.1)
    }

    pub(super) fn clear(&mut self) {
        self.set.clear();
        self.score.fill(None);
    }
}

/// A number with a total order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered(pub(super) f64);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
