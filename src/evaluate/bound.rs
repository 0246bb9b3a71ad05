//! The largest cut whose loss stays under a bound.

use std::collections::BTreeMap;

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct WithinBound {
    /// Experts of a layer.
    pub k: u32,
    /// Its mean KL divergence.
    pub kl: f64,
    /// All that was measured: the divergence of each number of experts.
    pub measured: BTreeMap<u32, f64>,
}

/// The smallest of the `possible` numbers (ascending, the last being all experts) that keeps `kl` at `bound` or below, by
/// bisection. The loss need not fall as the number grows: the one that is found was measured itself, and so was the next
/// above it; one that is over the bound there moves the search up.
///
/// # Errors
/// Those of `kl`.
pub fn smallest_within<E>(
    possible: &[u32],
    bound: f64,
    mut kl: impl FnMut(u32) -> Result<f64, E>,
) -> Result<Option<WithinBound>, E> {
    let mut measured = BTreeMap::new();
    let mut holds = |at: usize| -> Result<bool, E> {
        let k = possible[at];
        let value = match measured.get(&k) {
            Some(&value) => value,
            // All experts are the model itself.
            None if at + 1 == possible.len() => 0.0,
            None => kl(k)?,
        };
        measured.insert(k, value);
        Ok(value <= bound)
    };
    let Some(last) = possible.len().checked_sub(1) else { return Ok(None) };
    let (mut low, mut high) = (0, last);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    // `low` holds; what lies above it was measured where the bisection passed, not everywhere.
    let mut found = low;
    let mut at = low;
    while at < last && at < found + 2 {
        if !holds(at)? {
            found = at + 1;
        }
        at += 1;
    }
    holds(found)?;
    let k = possible[found];
    Ok(measured.get(&k).copied().map(|kl| WithinBound { k, kl, measured }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(curve: &[(u32, f64)], bound: f64) -> WithinBound {
        let possible: Vec<u32> = curve.iter().map(|point| point.0).collect();
        let kl = |k: u32| Ok::<f64, ()>(curve.iter().find(|point| point.0 == k).unwrap().1);
        smallest_within(&possible, bound, kl).unwrap().unwrap()
    }

    #[test]
    fn the_smallest_number_under_the_bound_is_found() {
        let curve: Vec<(u32, f64)> = (4..=32).map(|k| (k, f64::from(32 - k) / 100.0)).collect();
        for (bound, k) in [(0.0, 32), (0.005, 32), (0.01, 31), (0.105, 22), (1.0, 4)] {
            let found = search(&curve, bound);
            assert_eq!(found.k, k, "{bound}");
            assert!(found.kl <= bound && found.measured.len() <= 8, "{found:?}");
        }
    }

    #[test]
    fn a_number_whose_neighbour_above_breaks_the_bound_is_not_taken() {
        let curve =
            [(4, 0.9), (8, 0.04), (12, 0.2), (16, 0.03), (20, 0.02), (24, 0.01), (28, 0.0), (32, 0.0)];
        let found = search(&curve, 0.05);
        assert_eq!(found.k, 16);
        assert!(found.measured.contains_key(&20), "the next above was measured: {found:?}");
    }

    #[test]
    fn what_cannot_be_chosen_counts_as_over_the_bound() {
        let curve = [(4, f64::INFINITY), (8, f64::INFINITY), (16, 0.5), (32, 0.0)];
        assert_eq!(search(&curve, 0.6).k, 16);
        assert_eq!(search(&curve, 0.1).k, 32);
        assert_eq!(smallest_within(&[], 1.0, |_| Ok::<f64, ()>(0.0)), Ok(None));
    }
}
