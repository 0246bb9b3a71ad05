//! Windows that are left out of the counts, so that something is left to measure on.

use serde::{Deserialize, Serialize};

/// Which windows of a corpus were not counted: of the first `of`, every `every`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// One window in so many is left out: those whose number, from 1, is a multiple of this.
    pub every: u32,
    /// Windows of the corpus, those that were left out among them.
    pub of: u64,
}

impl HeldOut {
    /// The smallest part of a text that is left out in all: one window in so many for a share such as 0.1.
    pub fn every(share: f64) -> Option<u32> {
        (share > 0.0 && share <= 0.5).then(|| (1.0 / share).round() as u32)
    }

    /// Whether the window at this place, from 0, is left out.
    pub fn holds(self, at: u64) -> bool {
        at < self.of && self.every > 0 && (at + 1).is_multiple_of(u64::from(self.every))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_window_of_those_there_are_is_held_out() {
        let held_out = HeldOut { every: HeldOut::every(0.1).unwrap(), of: 25 };
        let places: Vec<u64> = (0..100).filter(|&at| held_out.holds(at)).collect();
        assert_eq!(places, [9, 19]);
        assert_eq!((HeldOut::every(0.0), HeldOut::every(0.6), HeldOut::every(f64::NAN)), (None, None, None));
    }
}
