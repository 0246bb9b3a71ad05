//! The windows of each corpus in two halves, counted apart: a part that is counted has a twin for its first half.

use crate::usage::ExactSums;
use std::collections::BTreeMap;

/// Parts with their twins: part `p` counts the second half of the windows, part `p + parts` the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halves {
    parts: usize,
}

impl Halves {
    /// Twins of `parts` parts.
    pub(super) fn of(parts: usize) -> Halves {
        Halves { parts }
    }

    /// Parts and twins together.
    pub(super) fn n_parts(self) -> usize {
        2 * self.parts
    }

    /// What is to be added to the parts of the window at this place of a corpus of `windows`: of an odd number the
    /// second half has one more.
    pub(super) fn offset(self, at: usize, windows: usize) -> u32 {
        let first = at < windows / 2;
        if first { u32::try_from(self.parts).expect("parts are numbered by a u32") } else { 0 }
    }

    /// Gives the first half of the windows of each corpus to the twins of its parts.
    #[cfg(feature = "llama")]
    pub(super) fn tell_apart(windows: &mut crate::windows::Windows) -> Halves {
        let halves = Halves::of(windows.parts.len());
        for windows in &mut windows.corpora {
            let n_windows = windows.len();
            for (at, window) in windows.iter_mut().enumerate() {
                let offset = halves.offset(at, n_windows);
                window.parts.iter_mut().chain(&mut window.answer).for_each(|part| *part += offset);
            }
        }
        halves
    }

    /// Tokens of each part, both halves together.
    pub(super) fn tokens(self, tokens: &[u64]) -> Vec<u64> {
        let (second, first) = tokens.split_at(self.parts);
        second.iter().zip(first).map(|(a, b)| a + b).collect()
    }

    /// The sums of the parts by name, each of its first half of the windows and of its second; parts that are not `wanted`
    /// are left out.
    pub(super) fn pairs<'n>(
        self,
        names: impl Iterator<Item = &'n str>,
        wanted: impl Fn(usize) -> bool,
        mut parts: Vec<ExactSums>,
    ) -> BTreeMap<String, [ExactSums; 2]> {
        let twins = parts.split_off(self.parts.min(parts.len()));
        let pairs = names.zip(twins.into_iter().zip(parts)).enumerate();
        pairs
            .filter(|(at, _)| wanted(*at))
            .map(|(_, (name, (first, second)))| (name.to_owned(), [first, second]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::LayerUsage;

    fn sums(count: &[u64]) -> ExactSums {
        ExactSums { n_tokens: count.iter().sum(), count: count.to_vec(), weight: None, activation: None }
    }

    #[test]
    fn first_half_of_the_windows_goes_to_the_twins() {
        let halves = Halves::of(3);
        assert_eq!((0..5).map(|at| halves.offset(at, 5)).collect::<Vec<_>>(), [3, 3, 0, 0, 0]);
        assert_eq!(halves.offset(0, 1), 0);
        assert_eq!(halves.tokens(&[1, 2, 3, 10, 20, 30]), [11, 22, 33]);
    }

    #[test]
    fn parts_and_twins_are_pairs_and_those_not_wanted_are_left_out() {
        let parts = vec![sums(&[1, 0]), sums(&[0, 0]), sums(&[2, 2]), sums(&[0, 0])];
        let pairs = Halves::of(2).pairs(["a", "b"].into_iter(), |at| at == 0, parts);
        assert_eq!(pairs, BTreeMap::from([("a".into(), [sums(&[2, 2]), sums(&[1, 0])])]));
        let layer = LayerUsage::of_halves(0, 1, &pairs).unwrap();
        assert_eq!((layer.total.count, layer.corpora["a"].n_tokens), (vec![3, 2], 5));
        assert_eq!(layer.half.unwrap()["a"].count, [2, 2]);
    }

    #[test]
    fn single_window_has_no_halves() {
        let pairs = Halves::of(1).pairs(["a"].into_iter(), |_| true, vec![sums(&[1, 1]), sums(&[0, 0])]);
        let layer = LayerUsage::of_halves(0, 1, &pairs).unwrap();
        assert_eq!((layer.corpora["a"].n_tokens, layer.half), (2, None));
    }
}
