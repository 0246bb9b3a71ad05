//! The next token of an answer.

use crate::llama::Token;
use crate::random::SplitMix;

/// How the model writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generation {
    /// Tokens, at most.
    pub tokens: u32,
    /// 0 takes the likeliest token each time; above, the probabilities are those of the logits divided by it.
    pub temperature: f32,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// Chooses the next token.
pub(super) struct Sampler {
    pub(super) generation: Generation,
    random: SplitMix,
    weights: Vec<f64>,
}

impl Sampler {
    pub(super) fn new(generation: Generation) -> Sampler {
        Sampler { generation, random: SplitMix(generation.seed), weights: Vec::new() }
    }

    /// None when no logit is a number.
    pub(super) fn next(&mut self, logits: &[f32]) -> Option<Token> {
        let (mut chosen, greatest) = greatest(logits)?;
        if self.generation.temperature > 0.0 {
            let temperature = f64::from(self.generation.temperature);
            let weight = |logit: &f32| match logit.is_nan() {
                true => 0.0,
                false => ((f64::from(*logit) - f64::from(greatest)) / temperature).exp(),
            };
            self.weights.clear();
            self.weights.extend(logits.iter().map(weight));
            let mut left = self.random.unit() * self.weights.iter().sum::<f64>();
            for (token, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                chosen = token;
                left -= weight;
                if left < 0.0 {
                    break;
                }
            }
        }
        Token::try_from(chosen).ok()
    }
}

/// The token with the greatest logit, the first of several; none when no logit is a number.
pub(super) fn likeliest(logits: &[f32]) -> Option<Token> {
    greatest(logits).and_then(|(token, _)| Token::try_from(token).ok())
}

fn greatest(logits: &[f32]) -> Option<(usize, f32)> {
    let numbers = logits.iter().copied().enumerate().filter(|(_, logit)| !logit.is_nan());
    numbers.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32) -> Sampler {
        Sampler::new(Generation { tokens: 1, temperature, seed: 3 })
    }

    #[test]
    fn sampler_without_temperature_takes_the_likeliest() {
        assert_eq!(sampler(0.0).next(&[0.0, f32::NAN, 2.0, 2.0, 1.0]), Some(2));
        assert_eq!(sampler(0.0).next(&[f32::NAN]), None);
    }

    #[test]
    fn sampler_with_temperature_draws_by_the_softmax() {
        let mut sampler = sampler(2.0);
        let logits = [0.0, 2.0 * 3.0_f32.ln(), f32::NEG_INFINITY, f32::NAN];
        let mut count = [0_u32; 4];
        for _ in 0..40_000 {
            count[sampler.next(&logits).unwrap() as usize] += 1;
        }
        assert_eq!(count[2] + count[3], 0);
        assert!(count[0].abs_diff(10_000) < 400, "a quarter of the draws: {count:?}");
    }
}
