//! From the losses of single tokens to the figures that people read. The definitions are those of `llama-perplexity`
//! (`--kl-divergence`), so that the figures can be held against each other.

use serde::{Deserialize, Serialize};

/// How well a model foresaw one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLoss {
    /// -ln of the probability that the model gave it.
    pub nll: f64,
    /// Against a base.
    pub base: Option<BaseLoss>,
}

/// What a base says of the same token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BaseLoss {
    /// -ln of the probability that the base gave it.
    pub nll: f64,
    /// The KL divergence of the two predictions.
    pub kl: f32,
    /// Whether both find the same token the likeliest.
    pub same_top: bool,
}

/// The figures of a text, or of several together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Tokens that were scored: those of the second half of each window.
    pub scored: u64,
    /// Perplexity: e to the mean of -ln p.
    pub ppl: f64,
    /// Its standard error.
    pub ppl_err: f64,
    /// The divergence from the base; absent where nothing was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl: Option<KlFigures>,
}

/// How far a model is from its base.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KlFigures {
    /// Mean KL divergence of a token, in nats.
    pub kl_mean: f64,
    /// Its standard error.
    pub kl_err: f64,
    /// Median.
    pub kl_median: f64,
    /// 99 % of the tokens have no more.
    pub kl_p99: f64,
    /// The largest of a token.
    pub kl_max: f64,
    /// Root of the mean square of the change in the probability of the token that came.
    pub dp_rms: f64,
    /// Its standard error.
    pub dp_rms_err: f64,
    /// Share of the tokens for which both find the same token the likeliest.
    pub same_top: f64,
    /// Its standard error.
    pub same_top_err: f64,
    /// Perplexity of the base.
    pub ppl_base: f64,
    /// ln of the perplexity over that of the base.
    pub ln_ppl_ratio: f64,
    /// Its standard error.
    pub ln_ppl_ratio_err: f64,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error; 0 for fewer than two values.
    pub err: f64,
}

impl Mean {
    /// Of `values`; 0 of none.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Mean {
        let n = values.clone().count();
        if n == 0 {
            return Mean { value: 0.0, err: 0.0 };
        }
        let value = values.clone().sum::<f64>() / n as f64;
        let square = values.map(|one| (one - value) * (one - value)).sum::<f64>() / n as f64;
        Mean { value, err: if n > 1 { (square / (n - 1) as f64).sqrt() } else { 0.0 } }
    }
}

impl Figures {
    /// The figures of these tokens; `None` of none.
    pub fn of<'l>(losses: impl Iterator<Item = &'l TokenLoss> + Clone) -> Option<Figures> {
        let scored = losses.clone().count();
        let nll = Mean::of(losses.clone().map(|loss| loss.nll));
        let ppl = nll.value.exp();
        let kl = losses.clone().all(|loss| loss.base.is_some()).then(|| KlFigures::of(losses));
        (scored > 0).then_some(Figures { scored: scored as u64, ppl, ppl_err: ppl * nll.err, kl })
    }

    /// The mean divergence, where a base was compared.
    pub fn kl_mean(&self) -> Option<f64> {
        self.kl.as_ref().map(|kl| kl.kl_mean)
    }
}

impl KlFigures {
    fn of<'l>(losses: impl Iterator<Item = &'l TokenLoss> + Clone) -> KlFigures {
        let pairs = losses.filter_map(|loss| Some((loss.nll, loss.base?)));
        let mut sorted: Vec<f64> = pairs.clone().map(|(_, base)| f64::from(base.kl)).collect();
        sorted.sort_by(f64::total_cmp);
        let kl = Mean::of(pairs.clone().map(|(_, base)| f64::from(base.kl)));
        let squares = Mean::of(pairs.clone().map(|(nll, base)| {
            let change = (-nll).exp() - (-base.nll).exp();
            change * change
        }));
        let dp_rms = squares.value.sqrt();
        let same_top = Mean::of(pairs.clone().map(|(_, base)| f64::from(u8::from(base.same_top))));
        let ratio = Mean::of(pairs.clone().map(|(nll, base)| nll - base.nll));
        KlFigures {
            kl_mean: kl.value,
            kl_err: kl.err,
            kl_median: percentile(&sorted, 0.5),
            kl_p99: percentile(&sorted, 0.99),
            kl_max: percentile(&sorted, 1.0),
            dp_rms,
            dp_rms_err: if dp_rms > 0.0 { 0.5 / dp_rms * squares.err } else { 0.0 },
            same_top: same_top.value,
            same_top_err: same_top.err,
            ppl_base: Mean::of(pairs.map(|(_, base)| base.nll)).value.exp(),
            ln_ppl_ratio: ratio.value,
            ln_ppl_ratio_err: ratio.err,
        }
    }
}

/// The value that `share` of the sorted values do not exceed, between two of them by interpolation.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    sorted[low] + part * (sorted[(low + 1).min(last)] - sorted[low])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(nll: f64, base: f64, kl: f32, same_top: bool) -> TokenLoss {
        TokenLoss { nll, base: Some(BaseLoss { nll: base, kl, same_top }) }
    }

    #[test]
    fn perplexity_and_its_error_follow_their_definitions() {
        let losses: Vec<TokenLoss> =
            [1.0, 2.0, 3.0, 6.0].into_iter().map(|nll| TokenLoss { nll, base: None }).collect();
        let figures = Figures::of(losses.iter()).unwrap();
        assert_eq!(figures.scored, 4);
        assert!((figures.ppl - 3f64.exp()).abs() < 1e-12);
        // Variance 3.5; the standard error of the mean is its root over n - 1.
        assert!((figures.ppl_err - 3f64.exp() * (3.5f64 / 3.0).sqrt()).abs() < 1e-9);
        assert_eq!(figures.kl, None);
        assert_eq!(Figures::of([].iter()), None);
    }

    #[test]
    fn divergence_figures_follow_their_definitions() {
        let losses = [loss(1.0, 1.0, 0.0, true), loss(2.0, 1.0, 0.4, false), loss(0.5, 1.0, 0.2, true)];
        let kl = Figures::of(losses.iter()).unwrap().kl.unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-7, "{a} {b}");
        close(kl.kl_mean, 0.2);
        close(kl.kl_median, 0.2);
        close(kl.kl_max, 0.4);
        close(kl.kl_p99, 0.2 + 0.98 * 0.2);
        close(kl.same_top, 2.0 / 3.0);
        close(kl.ppl_base, 1f64.exp());
        close(kl.ln_ppl_ratio, 0.5 / 3.0);
        let changes = [0.0, (-2f64).exp() - (-1f64).exp(), (-0.5f64).exp() - (-1f64).exp()];
        close(kl.dp_rms, (changes.iter().map(|change| change * change).sum::<f64>() / 3.0).sqrt());
    }
}
