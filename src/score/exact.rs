//! Blended counts without rounding, so that experts that are equal are found equal.
//!
//! A blended count is the sum of share · count / tokens over the corpora. In floating point, equal sums come out unequal
//! by the order of their terms. Here the shares are the decimal numbers that they were written as, all sums are whole
//! numbers over one denominator, and only the last step rounds: the same whole number to the same result.

/// A whole number of any size, its 32-bit digits from the lowest on, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whole(Vec<u32>);

impl Whole {
    fn new(number: u64) -> Self {
        let mut whole = Self(vec![number as u32, (number >> 32) as u32]);
        whole.trim();
        whole
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn times(&self, factor: u64) -> Self {
        let mut product = Self(Vec::with_capacity(self.0.len() + 2));
        let mut carry = 0_u128;
        for &digit in &self.0 {
            carry += u128::from(digit) * u128::from(factor);
            product.0.push(carry as u32);
            carry >>= 32;
        }
        while carry > 0 {
            product.0.push(carry as u32);
            carry >>= 32;
        }
        product.trim();
        product
    }

    fn add(&mut self, other: &Self) {
        let mut carry = 0_u64;
        for at in 0..self.0.len().max(other.0.len()) {
            if at == self.0.len() {
                self.0.push(0);
            }
            carry += u64::from(self.0[at]) + u64::from(other.0.get(at).copied().unwrap_or(0));
            self.0[at] = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// The number as `m * 2^e`, `m` rounded.
    fn scaled(&self) -> (f64, i32) {
        let top = self.0.iter().rev().take(3).fold(0_u128, |top, &digit| top << 32 | u128::from(digit));
        let below = self.0.len().saturating_sub(3);
        // Shares and tokens are numbers of 64 bits: no sum of theirs has 2^31 digits.
        (top as f64, 32 * below as i32)
    }
}

/// The weights with which the counts of some corpora are summed up.
#[derive(Debug)]
pub(super) struct Weights {
    corpora: Vec<Whole>,
    denominator: Whole,
}

impl Weights {
    /// The weights of corpora that have these shares and tokens; neither is 0.
    pub(super) fn new(corpora: &[(f64, u64)]) -> Self {
        let decimals: Vec<(u64, i32)> = corpora.iter().map(|&(share, _)| decimal(share)).collect();
        let least = decimals.iter().map(|(_, exponent)| *exponent).min().unwrap_or(0);
        let mut tokens: Vec<u64> = corpora.iter().map(|(_, tokens)| *tokens).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let mut shares = Whole::new(0);
        let mut weights = Vec::with_capacity(corpora.len());
        for (&(digits, exponent), &(_, own)) in decimals.iter().zip(corpora) {
            let share = (least..exponent).fold(Whole::new(digits), |share, _| share.times(10));
            shares.add(&share);
            weights
                .push(tokens.iter().filter(|&&other| other != own).fold(share, |weight, &n| weight.times(n)));
        }
        let denominator = tokens.iter().fold(shares, |product, &n| product.times(n));
        Self { corpora: weights, denominator }
    }

    /// The blended count of an expert that has these counts, one a corpus.
    pub(super) fn blend(&self, counts: impl Iterator<Item = u64>) -> f64 {
        let mut sum = Whole::new(0);
        for (weight, count) in self.corpora.iter().zip(counts) {
            sum.add(&weight.times(count));
        }
        let ((above, up), (below, down)) = (sum.scaled(), self.denominator.scaled());
        above / below * 2_f64.powi(up - down)
    }
}

/// A number above 0 as the shortest decimal number that stands for it: `digits * 10^exponent`.
fn decimal(number: f64) -> (u64, i32) {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // A double has at most 17 digits, and an exponent of three.
    (digits.parse().unwrap_or(0), exponent.parse::<i32>().unwrap_or(0) - fraction as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_exact() {
        let large = Whole::new(u64::MAX).times(u64::MAX).times(7);
        let mut sum = large.clone();
        sum.add(&large);
        assert_eq!(sum, large.times(2));
        assert_eq!(Whole::new(0).times(9), Whole(Vec::new()));
        assert_eq!(Whole::new(1 << 40).scaled(), ((1_u64 << 40) as f64, 0));
        let (m, e) = Whole::new(3).times(1 << 63).times(1 << 63).times(1 << 63).scaled();
        assert_eq!(m * 2_f64.powi(e), 3.0 * 2_f64.powi(189));
    }

    #[test]
    fn shares_are_the_decimals_that_were_written() {
        for (number, wanted) in
            [(0.1, (1, -1)), (12.5, (125, -1)), (3.0, (3, 0)), (1e300, (1, 300)), (5e-324, (5, -324))]
        {
            assert_eq!(decimal(number), wanted);
        }
        let third = 1.0 / 3.0;
        let (digits, exponent) = decimal(third);
        assert_eq!(format!("{digits}e{exponent}").parse::<f64>(), Ok(third));
    }

    #[test]
    fn extreme_shares_give_finite_values() {
        let weights = Weights::new(&[(1e300, 3), (1e-300, 7)]);
        assert_eq!(weights.blend([3, 0].into_iter()), 1.0);
        assert!(weights.blend([0, 7].into_iter()) >= 0.0);
        assert!(
            (Weights::new(&[(1.0, u64::MAX), (1.0, 1)]).blend([u64::MAX, 1].into_iter()) - 1.0).abs() < 1e-15
        );
    }
}
