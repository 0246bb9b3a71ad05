//! A plan made better by trial: experts next to the cut are exchanged, and what helps stays.

use super::exchange::{Exchange, Margin, exchanged};
use super::figures::TokenLoss;
use super::measure::Losses;
use super::probes::Probes;
use super::{EvalError, Mean, WhatIf};
use crate::moe::KeptExperts;
use crate::progress::{Progress, Silent};
use std::collections::BTreeSet;
use std::time::Instant;

/// A trial counts as better when the mean divergence falls by so many standard errors of the difference.
const BEYOND_NOISE: f64 = 2.0;

/// How far a search has come.
#[derive(Clone, Debug)]
pub struct Refined {
    /// The best plan so far.
    pub keep: KeptExperts,
    /// Its mean KL divergence on the texts of the search.
    pub kl: f64,
    /// That of the plan that the search began with.
    pub kl_before: f64,
    /// The exchanges that were accepted, in their order.
    pub accepted: Vec<Exchange>,
    /// Plans that were tried.
    pub tried: usize,
    /// What the trials cost, in evaluations of all the texts of the search: most trials end early.
    pub evaluations: f64,
    /// Whether no exchange is left to try: neither time nor the user ended the search.
    pub exhausted: bool,
}

/// Why a search ends.
enum End {
    /// The time is over, or the user interrupts.
    Stopped,
    Failed(EvalError),
}

impl From<EvalError> for End {
    fn from(error: EvalError) -> Self {
        if error.is_interrupt() { End::Stopped } else { End::Failed(error) }
    }
}

/// Searches for a better plan than `start` until no exchange is left to try, `deadline` has passed, or the user interrupts.
/// `margins` says what lies next to the cut. A trial is accepted when the mean divergence falls beyond the noise of
/// the difference, token by token; `accepted` is told of each, and how many exchanges it made, so that nothing is lost.
///
/// A round probes the experts on either side of the cut, from it outwards: each is exchanged for one of the other side, which
/// stays so where it helps. What does not help ends early, and still says what each expert is worth, from which all pairs are
/// guessed as if effects were sums. Pairs that may help are then tried, those of all layers at once, and by halves where that
/// is no better. At last come all other pairs, one by one. Experts that were exchanged stay where they are.
///
/// # Errors
/// When the starting plan cannot be measured, or llama.cpp fails; an interrupt is no error.
pub fn refine(
    what_if: &mut WhatIf<'_, '_>,
    start: &KeptExperts,
    margins: &dyn Fn(&Refined) -> Vec<Margin>,
    deadline: Instant,
    accepted: &mut dyn FnMut(&Refined, usize) -> Result<(), EvalError>,
    progress: &mut dyn Progress,
) -> Result<Refined, EvalError> {
    let begin = Instant::now();
    let best = what_if.cut(start, &mut Silent)?;
    let kl_before = kl(&best);
    let refined = Refined {
        keep: start.clone(),
        kl: kl_before,
        kl_before,
        accepted: Vec::new(),
        tried: 0,
        evaluations: 0.0,
        exhausted: false,
    };
    let refused = BTreeSet::new();
    let mut search = Search { what_if, best, refined, refused, begin, deadline, accepted, progress };
    match search.run(margins) {
        Ok(()) => search.refined.exhausted = true,
        Err(End::Stopped) => {}
        Err(End::Failed(error)) => return Err(error),
    }
    Ok(search.refined)
}

struct Search<'s, 'm, 'a> {
    what_if: &'s mut WhatIf<'m, 'a>,
    best: Losses,
    refined: Refined,
    /// What this round has refused.
    refused: BTreeSet<Exchange>,
    begin: Instant,
    deadline: Instant,
    accepted: &'s mut dyn FnMut(&Refined, usize) -> Result<(), EvalError>,
    progress: &'s mut dyn Progress,
}

impl Search<'_, '_, '_> {
    fn run(&mut self, margins: &dyn Fn(&Refined) -> Vec<Margin>) -> Result<(), End> {
        loop {
            let before = self.refined.accepted.len();
            self.refused.clear();
            let mut probes = Probes::new(margins(&self.refined));
            loop {
                let ring = probes.ring();
                if ring.is_empty() {
                    break;
                }
                for exchange in ring {
                    let Some(keep) = exchanged(&self.refined.keep, &[exchange]) else { continue };
                    let (is_made, change) = self.attempt(keep, &[exchange])?;
                    if is_made {
                        probes.made(exchange);
                    } else {
                        self.refused.insert(exchange);
                        probes.found(exchange, change);
                    }
                }
                self.take(&probes.promising(&self.refused), &mut probes)?;
            }
            for exchange in probes.pairs() {
                self.take(&[exchange], &mut probes)?;
            }
            if self.refined.accepted.len() == before {
                return Ok(());
            }
        }
    }

    /// Tries exchanges together; where that is not better, each half of them.
    fn take(&mut self, exchanges: &[Exchange], probes: &mut Probes) -> Result<(), End> {
        match exchanges {
            [] => return Ok(()),
            [one] if self.refused.contains(one) => return Ok(()),
            _ => {}
        }
        if let Some(keep) = exchanged(&self.refined.keep, exchanges)
            && self.attempt(keep, exchanges)?.0
        {
            exchanges.iter().for_each(|&exchange| probes.made(exchange));
            return Ok(());
        }
        match exchanges {
            [one] => {
                self.refused.insert(*one);
                Ok(())
            }
            _ => {
                let (better, worse) = exchanges.split_at(exchanges.len() / 2);
                self.take(better, probes)?;
                self.take(worse, probes)
            }
        }
    }

    /// Measures a plan and accepts it where it is better; gives the change of the mean divergence, over as much of the text
    /// as it took to see that it is not.
    fn attempt(&mut self, keep: KeptExperts, exchanges: &[Exchange]) -> Result<(bool, f64), End> {
        let losses = self.trial(&keep)?;
        let change = change(&self.best, &losses).value;
        let is_whole = losses.n_scored() == self.best.n_scored();
        if !(is_whole && is_better(&self.best, &losses)) {
            return Ok((false, change));
        }
        self.refined.kl = kl(&losses);
        self.refined.keep = keep;
        self.refined.accepted.extend_from_slice(exchanges);
        self.best = losses;
        (self.accepted)(&self.refined, exchanges.len()).map_err(End::Failed)?;
        Ok((true, change))
    }

    /// The losses of a plan, as far as they matter.
    fn trial(&mut self, keep: &KeptExperts) -> Result<Losses, End> {
        if Instant::now() >= self.deadline {
            return Err(End::Stopped);
        }
        let best = &self.best;
        let losses = self.what_if.try_cut(keep, &|so_far| is_hopeless(best, so_far), &mut Silent)?;
        self.refined.tried += 1;
        self.refined.evaluations += losses.n_scored() as f64 / self.best.n_scored().max(1) as f64;
        let total = self.deadline.saturating_duration_since(self.begin).as_millis().max(1);
        let spent = self.begin.elapsed().as_millis().min(total);
        self.progress.update((spent * 100 / total) as u64, 100);
        Ok(losses)
    }
}

/// Whether the divergence falls beyond the noise from one measurement to another of the same tokens.
pub fn is_better(before: &Losses, after: &Losses) -> bool {
    let change = change(before, after);
    change.value < -BEYOND_NOISE * change.err
}

/// Whether what was measured so far says that the rest will not make it better.
fn is_hopeless(before: &Losses, so_far: &Losses) -> bool {
    let change = change(before, so_far);
    change.err > 0.0 && change.value > 0.5 * change.err
}

/// The mean change of the divergence of a token, over the tokens that both have.
fn change(before: &Losses, after: &Losses) -> Mean {
    let pairs =
        before.corpora.iter().zip(&after.corpora).flat_map(|(before, after)| before.iter().zip(after));
    let kl = |loss: &TokenLoss| loss.base.map_or(0.0, |base| f64::from(base.kl));
    Mean::of(pairs.map(|(before, after)| kl(after) - kl(before)))
}

fn kl(losses: &Losses) -> f64 {
    losses.all().and_then(|figures| figures.kl_mean()).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::BaseLoss;

    fn losses(values: &[f32]) -> Losses {
        let loss = |&kl: &f32| TokenLoss { nll: 1.0, base: Some(BaseLoss { nll: 1.0, kl, same_top: true }) };
        Losses { corpora: vec![values.iter().map(loss).collect()] }
    }

    #[test]
    fn an_exchange_within_the_noise_is_not_better() {
        let before: Vec<f32> = (0..100).map(|at| 0.5 + (at % 7) as f32 / 10.0).collect();
        let noisy: Vec<f32> =
            before.iter().enumerate().map(|(at, kl)| kl + if at % 2 == 0 { 0.3 } else { -0.31 }).collect();
        let lower: Vec<f32> =
            before.iter().enumerate().map(|(at, kl)| kl - 0.1 - (at % 3) as f32 / 100.0).collect();
        assert!(!is_better(&losses(&before), &losses(&noisy)));
        assert!(is_better(&losses(&before), &losses(&lower)));
        assert!(is_hopeless(&losses(&lower), &losses(&before[..20])));
    }
}
