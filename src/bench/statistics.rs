//! Speeds from times.

use serde::Serialize;

/// Tokens a second, over the repetitions of a test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Mean, as `llama-bench` gives it.
    pub mean: f64,
    /// Standard deviation of the sample; 0 for one repetition.
    pub deviation: f64,
    /// Median.
    pub median: f64,
    /// Slowest.
    pub least: f64,
    /// Fastest.
    pub most: f64,
}

impl Speed {
    /// The speed of `tokens` tokens in each of `nanoseconds`; `None` without a time.
    pub fn of(tokens: u64, nanoseconds: &[u64]) -> Option<Speed> {
        let mut speeds: Vec<f64> =
            nanoseconds.iter().map(|&time| tokens as f64 * 1e9 / time.max(1) as f64).collect();
        speeds.sort_by(f64::total_cmp);
        let (&least, &most) = (speeds.first()?, speeds.last()?);
        let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
        Some(Speed { mean, deviation: deviation(&speeds, mean), median: median(&speeds), least, most })
    }
}

/// The middle of ascending values, which are not empty.
pub(super) fn median(ascending: &[f64]) -> f64 {
    let half = ascending.len() / 2;
    if ascending.len().is_multiple_of(2) {
        (ascending[half - 1] + ascending[half]) / 2.0
    } else {
        ascending[half]
    }
}

/// Standard deviation of a sample.
pub(super) fn deviation(values: &[f64], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_of_several_times_has_mean_median_and_spread() {
        let speed = Speed::of(100, &[1_000_000_000, 500_000_000, 2_000_000_000]).unwrap();
        assert_eq!((speed.median, speed.least, speed.most), (100.0, 50.0, 200.0));
        assert!((speed.mean - 350.0 / 3.0).abs() < 1e-9);
        assert!((speed.deviation - 76.376_261_582_597_33).abs() < 1e-9);
        assert_eq!(Speed::of(7, &[7_000_000_000]).unwrap().deviation, 0.0);
        assert_eq!(Speed::of(7, &[]), None);
    }

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}
