//! Keeps a disk busy on both sides of a copy: it is told what will be read, and asked to write what was copied.
//!
//! The system reads ahead on its own only within a run, and a cut is many runs with gaps between them; and it begins
//! to write when much is waiting, by which time the disk could have written most of it. These are hints: a copy is the
//! same without them.

use std::fs::File;
use std::ops::Range;

use crate::sys;

/// Bytes ahead of the copy that the system is told of.
const AHEAD: u64 = 32 << 20;

/// The largest part of a range that is told of at once.
const PIECE: u64 = 4 << 20;

/// Bytes that are copied before the system is asked to begin writing them.
const BEHIND: u64 = 16 << 20;

/// The pace of one output file, which is written from front to back.
pub(super) struct Pace<'a> {
    out: &'a File,
    /// What is still to be read, in the order in which it will be, as ranges of files.
    ahead: std::vec::IntoIter<(&'a File, Range<u64>)>,
    /// The rest of a range that was told of in part.
    rest: Option<(&'a File, Range<u64>)>,
    /// Where in the output that will be which was told of.
    told: u64,
    /// Where in the output the copy is.
    at: u64,
    /// Where in the output writing was last asked for.
    asked: u64,
}

impl<'a> Pace<'a> {
    /// `data` is what will be read, and comes to lie behind each other in `out` from `start` on.
    pub(super) fn new(out: &'a File, start: u64, data: Vec<(&'a File, Range<u64>)>) -> Self {
        let mut pace = Self { out, ahead: data.into_iter(), rest: None, told: start, at: 0, asked: 0 };
        pace.tell();
        pace
    }

    /// So many bytes more were copied.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.at += bytes;
        self.tell();
        if self.at - self.asked >= BEHIND {
            sys::begin_writing(self.out, self.asked, self.at - self.asked);
            self.asked = self.at;
        }
    }

    fn tell(&mut self) {
        while self.told < self.at.saturating_add(AHEAD) {
            let Some((file, range)) = self.rest.take().or_else(|| self.ahead.next()) else { return };
            let end = range.end.min(range.start.saturating_add(PIECE));
            sys::advise_soon(file, range.start, end - range.start);
            self.told = self.told.saturating_add(end - range.start);
            if end < range.end {
                self.rest = Some((file, end..range.end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_stays_a_little_ahead_and_covers_everything() {
        let (from, out) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let ranges = [0..PIECE, 2 * PIECE..2 * PIECE + 5 * AHEAD, 9 * AHEAD..9 * AHEAD + 1];
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let start = 100;
        let mut pace = Pace::new(&out, start, ranges.map(|range| (&from, range)).to_vec());
        assert!(pace.told >= AHEAD && pace.told < AHEAD + PIECE);
        pace.advance(start);
        let mut left = total;
        while left > 0 {
            let step = left.min(3 << 20);
            pace.advance(step);
            left -= step;
            let ahead = pace.told - pace.at;
            assert!(ahead < AHEAD + PIECE && (ahead >= AHEAD || pace.told == start + total), "{ahead}");
            assert!(pace.at - pace.asked < BEHIND);
        }
        assert_eq!((pace.at, pace.told), (start + total, start + total));
        // Padding at the end is not read.
        pace.advance(31);
    }
}
