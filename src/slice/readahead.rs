//! Keeps a disk busy on both sides of a copy: the system is hinted what will be read, and asked to write what was copied.
//!
//! The system reads ahead on its own only within a run, and a cut is many runs with gaps between them; and it begins
//! to write when much is waiting, by which time the disk could have written most of it. These are hints: a copy is the
//! same without them.

use std::fs::File;
use std::ops::Range;

use super::behind::{Frontier, STRETCH};
use crate::sys;

/// Bytes ahead of the copy that the system is hinted of.
const AHEAD: u64 = 32 << 20;

/// The largest part of a range that is hinted of at once.
const PIECE: u64 = 4 << 20;

/// What will be read, and how far the system is hinted of it.
pub(super) struct ReadAhead<'a> {
    /// What is still to be read, in the order in which it will be, as ranges of files.
    ranges: std::vec::IntoIter<(&'a File, Range<u64>)>,
    /// The rest of a range that was hinted of in part.
    rest: Option<(&'a File, Range<u64>)>,
    /// Bytes that were hinted of.
    hinted: u64,
    /// Bytes that were read.
    read: u64,
}

impl<'a> ReadAhead<'a> {
    /// These ranges of files will be read in this order.
    pub(super) fn new(ranges: Vec<(&'a File, Range<u64>)>) -> Self {
        let mut ahead = Self { ranges: ranges.into_iter(), rest: None, hinted: 0, read: 0 };
        ahead.hint();
        ahead
    }

    /// So many bytes more were read.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.read += bytes;
        self.hint();
    }

    fn hint(&mut self) {
        while self.hinted < self.read.saturating_add(AHEAD) {
            let Some((file, range)) = self.rest.take().or_else(|| self.ranges.next()) else { return };
            let end = range.end.min(range.start.saturating_add(PIECE));
            sys::advise_soon(file, range.start, end - range.start);
            self.hinted = self.hinted.saturating_add(end - range.start);
            if end < range.end {
                self.rest = Some((file, end..range.end));
            }
        }
    }
}

/// The hints of one output file, which is written from front to back.
pub(super) struct IoHints<'a> {
    ahead: ReadAhead<'a>,
    out: &'a File,
    /// Where in the output the copy is.
    at: u64,
    /// Where in the output writing was last asked for.
    asked: u64,
    /// Who reads behind the copy, and which output this is.
    behind: Option<(&'a Frontier<'a>, usize)>,
}

impl<'a> IoHints<'a> {
    /// `data` is what will be read for `out`, which is so manieth of the outputs that are read behind the copy.
    pub(super) fn new(
        out: &'a File,
        data: Vec<(&'a File, Range<u64>)>,
        behind: Option<(&'a Frontier<'a>, usize)>,
    ) -> Self {
        Self { ahead: ReadAhead::new(data), out, at: 0, asked: 0, behind }
    }

    /// So many bytes of the output more are there: copied, header or padding.
    pub(super) fn advance(&mut self, bytes: u64) {
        // Header and padding are next to nothing, and only make what is hinted of a little more.
        self.ahead.advance(bytes);
        self.at += bytes;
        if self.at - self.asked >= STRETCH {
            sys::begin_writing(self.out, self.asked, self.at - self.asked);
            self.asked = self.at - self.at % STRETCH;
        }
        if let Some((frontier, file)) = self.behind {
            frontier.reached(file, self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hinted_ranges_stay_ahead_and_cover_everything() {
        let (from, out) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let ranges = [0..PIECE, 2 * PIECE..2 * PIECE + 5 * AHEAD, 9 * AHEAD..9 * AHEAD + 1];
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut hints = IoHints::new(&out, ranges.map(|range| (&from, range)).to_vec(), None);
        assert!(hints.ahead.hinted >= AHEAD && hints.ahead.hinted < AHEAD + PIECE);
        let mut left = total;
        while left > 0 {
            let step = left.min(3 << 20);
            hints.advance(step);
            left -= step;
            let ahead = hints.ahead.hinted - hints.at;
            assert!(ahead < AHEAD + PIECE && (ahead >= AHEAD || hints.ahead.hinted == total), "{ahead}");
            assert!(hints.at - hints.asked < STRETCH);
        }
        assert_eq!((hints.at, hints.ahead.hinted), (total, total));
        // Padding at the end is not read.
        hints.advance(31);
    }
}
