//! Log-softmax over a vocabulary, for many tokens at once: straight from the logits, on all threads, no copy of them.

use crate::sys::{Wide, with_wide_registers};

/// Log-probabilities below this one count as this one: e^-80 is nothing beside 1.
const FLOOR: f32 = -80.0;
/// Terms that are added as F32 before they go into an F64 sum.
const BLOCK: usize = 64;
/// Lanes that the compiler may put into one register.
const LANES: usize = 16;

/// What turns logits into log-probabilities: `logit - max - log_sum`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normaliser {
    /// The greatest logit.
    pub max: f32,
    /// ln Σ exp(logit - max).
    pub log_sum: f32,
}

impl Normaliser {
    /// Of one row of logits; `None` when it holds a NaN, or no finite greatest value.
    pub fn of(logits: &[f32]) -> Option<Normaliser> {
        with_wide_registers(Normalising(logits))
    }

    #[inline(always)]
    fn compute(logits: &[f32]) -> Option<Normaliser> {
        let mut max = [f32::NEG_INFINITY; LANES];
        let mut nan = [false; LANES];
        let (blocks, rest) = logits.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                max[lane] = if block[lane] > max[lane] { block[lane] } else { max[lane] };
                nan[lane] |= block[lane].is_nan();
            }
        }
        let max = max.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
        if !max.is_finite() || nan.contains(&true) || rest.iter().any(|logit| logit.is_nan()) {
            return None;
        }
        let sum = sum_over(logits, |logit| exp(logit - max));
        Some(Normaliser { max, log_sum: sum.ln() as f32 })
    }

    /// The log-probability of a token with this logit.
    #[inline(always)]
    pub fn log_probability(self, logit: f32) -> f32 {
        logit - self.max - self.log_sum
    }

    /// All log-probabilities of a row.
    pub fn write(self, logits: &[f32], into: &mut [f32]) {
        for (to, &logit) in into.iter_mut().zip(logits) {
            *to = self.log_probability(logit);
        }
    }
}

/// The work of [`Normaliser::of`].
struct Normalising<'r>(&'r [f32]);

impl Wide for Normalising<'_> {
    type Output = Option<Normaliser>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        Normaliser::compute(self.0)
    }
}

/// What one row of logits says of the token that came, beside what another model says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Σ p · (ln p - ln q) over the vocabulary: p of the base, q of this row.
    pub kl: f32,
    /// Whether both find the same token the likeliest.
    pub same_top: bool,
}

/// Compares a row of logits with the log-probabilities of the base.
pub fn difference(logits: &[f32], normaliser: Normaliser, base: &[f32]) -> Difference {
    with_wide_registers(Comparing { logits, normaliser, base })
}

/// The work of [`difference`].
struct Comparing<'r> {
    logits: &'r [f32],
    normaliser: Normaliser,
    base: &'r [f32],
}

impl Wide for Comparing<'_> {
    type Output = Difference;

    #[inline(always)]
    fn run(self) -> Difference {
        compare(self.logits, self.normaliser, self.base)
    }
}

#[inline(always)]
fn compare(logits: &[f32], normaliser: Normaliser, base: &[f32]) -> Difference {
    let mut sum = 0.0;
    let mut base_max = f32::NEG_INFINITY;
    for (logits, base) in logits.chunks(BLOCK).zip(base.chunks(BLOCK)) {
        let mut terms = [0f32; LANES];
        let mut maxima = [f32::NEG_INFINITY; LANES];
        let mut term = |lane: usize, logit: f32, base: f32| {
            let (p, q) = (base.max(FLOOR), normaliser.log_probability(logit).max(FLOOR));
            terms[lane] += exp(p) * (p - q);
            maxima[lane] = if p > maxima[lane] { p } else { maxima[lane] };
        };
        let (logit_lanes, logit_rest) = logits.as_chunks::<LANES>();
        let (base_lanes, base_rest) = base.as_chunks::<LANES>();
        for (logits, base) in logit_lanes.iter().zip(base_lanes) {
            for lane in 0..LANES {
                term(lane, logits[lane], base[lane]);
            }
        }
        for (lane, (&logit, &base)) in logit_rest.iter().zip(base_rest).enumerate() {
            term(lane, logit, base);
        }
        sum += terms.iter().map(|&term| f64::from(term)).sum::<f64>();
        base_max = maxima.into_iter().fold(base_max, f32::max);
    }
    let top = logits.iter().position(|&logit| logit == normaliser.max);
    let same_top = top.is_some_and(|top| base.get(top).is_some_and(|&p| p >= base_max));
    // Rounding can leave a little less than nothing.
    Difference { kl: sum.max(0.0) as f32, same_top }
}

#[inline(always)]
fn sum_over(values: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    let block_sum = |block: &[f32]| {
        let mut lanes = [0f32; LANES];
        let (whole, rest) = block.as_chunks::<LANES>();
        for chunk in whole {
            for lane in 0..LANES {
                lanes[lane] += term(chunk[lane]);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane += term(value);
        }
        lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>()
    };
    values.chunks(BLOCK).map(block_sum).sum()
}

/// e^x for x up to 0, to a few units in the last place, without a branch: the compiler computes several at once, which it
/// cannot with the function of the C library. x is split as n · ln 2 + r, and e^r is a polynomial.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it leaves the nearest whole number in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, so that the product with n is exact.
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    p * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(n: usize, scale: f32) -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..n).map(|_| (next() - 0.5) * scale).collect()
    }

    fn exact(logits: &[f32]) -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&x| f64::from(x - max).exp()).sum();
        logits.iter().map(|&x| f64::from(x - max) - sum.ln()).collect()
    }

    #[test]
    fn exp_is_that_of_the_library() {
        for step in 0..87_000 {
            let x = -(step as f32) / 1000.0;
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours - theirs).abs() <= 4e-7 * theirs, "{x}: {ours} {theirs}");
        }
    }

    #[test]
    fn wide_registers_give_the_same_numbers() {
        let (a, b) = (logits(3001, 12.0), logits(3003, 12.0)[2..].to_vec());
        let normaliser = Normaliser::of(&a).unwrap();
        assert_eq!(Normaliser::compute(&a), Some(normaliser));
        let mut base = vec![0.0; b.len()];
        Normaliser::of(&b).unwrap().write(&b, &mut base);
        assert_eq!(difference(&a, normaliser, &base), compare(&a, normaliser, &base));
    }

    #[test]
    fn log_probabilities_equal_an_exact_computation() {
        for n in [1, 7, 16, 63, 64, 1000, 2048, 5001] {
            let logits = logits(n, 20.0);
            let normaliser = Normaliser::of(&logits).unwrap();
            for (&logit, exact) in logits.iter().zip(exact(&logits)) {
                let ours = f64::from(normaliser.log_probability(logit));
                assert!((ours - exact).abs() < 3e-6, "{n}: {ours} {exact}");
            }
        }
    }

    #[test]
    fn a_row_differs_from_itself_by_nothing_and_from_another_by_the_exact_divergence() {
        let (a, b) = (logits(3001, 12.0), logits(3003, 12.0)[2..].to_vec());
        let mut base = vec![0.0; a.len()];
        let normaliser = Normaliser::of(&a).unwrap();
        normaliser.write(&a, &mut base);
        assert_eq!(difference(&a, normaliser, &base), Difference { kl: 0.0, same_top: true });
        let found = difference(&b, Normaliser::of(&b).unwrap(), &base);
        let kl: f64 = exact(&a).iter().zip(exact(&b)).map(|(p, q)| p.exp() * (p - q)).sum();
        assert!((f64::from(found.kl) - kl).abs() < 1e-5 * kl, "{found:?} {kl}");
        assert!(!found.same_top);
    }

    #[test]
    fn logits_that_are_no_numbers_are_refused_wherever_they_stand() {
        for at in [0, 5, 31, 32, 33] {
            let mut row = logits(34, 1.0);
            row[at] = f32::NAN;
            assert_eq!(Normaliser::of(&row), None);
            row[at] = f32::INFINITY;
            assert_eq!(Normaliser::of(&row), None);
            row[at] = f32::NEG_INFINITY;
            assert!(Normaliser::of(&row).is_some(), "a token that cannot come is no fault");
        }
        assert_eq!(Normaliser::of(&[]), None);
    }
}
