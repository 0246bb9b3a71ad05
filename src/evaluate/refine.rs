//! A plan made better by trial: experts next to the cut are exchanged, and what helps stays.

use super::figures::TokenLoss;
use super::measure::Losses;
use super::{EvalError, Mean, WhatIf};
use crate::moe::{ExpertLayer, Experts, KeptExperts, LayerKind};
use crate::progress::{Progress, Silent};
use crate::score::LayerScores;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// An exchange counts as better when the mean divergence falls by so many standard errors of the difference.
const BEYOND_NOISE: f64 = 2.0;

/// Two experts of a layer, one of which leaves for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    /// The layer.
    pub layer: u32,
    /// The expert that leaves.
    pub leaves: u32,
    /// The expert that stays in its place.
    pub enters: u32,
}

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
    /// Exchanges that were tried.
    pub tried: usize,
    /// Whether no exchange is left to try: neither time nor the user ended the search.
    pub exhausted: bool,
}

/// The order of trials: pairs of a kept and a dropped expert of one layer, nearest to the cut first, layer by layer.
///
/// The first pairs are those whose scores say least about which of the two should stay. Groups of a router keep their
/// numbers, so both experts of a pair are of one group, and pinned experts do not leave.
pub fn exchanges(
    experts: &Experts,
    scores: &BTreeMap<u32, LayerScores>,
    keep: &KeptExperts,
    is_pinned: &dyn Fn(u32, u32) -> bool,
    depth: usize,
) -> Vec<Exchange> {
    let groups = experts.effective_groups().map_or(1, |groups| groups.count);
    let mut found = Vec::new();
    let cut = |layer: &&ExpertLayer| {
        keep.layer(layer.layer).is_some_and(|ids| ids.len() < layer.n_expert as usize)
            && layer.kind == LayerKind::Trunk
    };
    for layer in experts.layers.iter().filter(cut) {
        let Some(scores) = scores.get(&layer.layer) else { continue };
        let kept: BTreeSet<u32> = keep.layer(layer.layer).unwrap_or_default().iter().copied().collect();
        let size = (layer.n_expert / groups).max(1);
        for group in 0..groups {
            let members = scores.ranking().into_iter().filter(|id| id / size == group);
            let (stay, go): (Vec<u32>, Vec<u32>) = members.partition(|id| kept.contains(id));
            let stay = stay.into_iter().rev().filter(|&id| !is_pinned(layer.layer, id));
            for (i, leaves) in stay.take(depth).enumerate() {
                for (j, &enters) in go.iter().take(depth).enumerate() {
                    found.push((i + j, Exchange { layer: layer.layer, leaves, enters }));
                }
            }
        }
    }
    found.sort_by_key(|(distance, exchange)| (*distance, *exchange));
    found.into_iter().map(|(_, exchange)| exchange).collect()
}

/// The choice after an exchange; `None` when it no longer fits.
pub fn exchanged(keep: &KeptExperts, exchange: Exchange) -> Option<KeptExperts> {
    let ids = keep.layer(exchange.layer)?;
    if !ids.contains(&exchange.leaves) || ids.contains(&exchange.enters) {
        return None;
    }
    let mut ids: Vec<u32> = ids.iter().copied().filter(|&id| id != exchange.leaves).collect();
    ids.push(exchange.enters);
    ids.sort_unstable();
    let mut keep = keep.clone();
    keep.insert(exchange.layer, ids);
    Some(keep)
}

/// Tries `exchanges` on `what_if`, in rounds, until a round brings nothing, `deadline` has passed, or the user interrupts.
/// One is accepted when the mean divergence falls beyond the noise of the difference, token by token; `accepted` is told
/// of each, so that nothing is lost.
///
/// # Errors
/// When the starting plan cannot be measured, or llama.cpp fails; an interrupt is no error.
pub fn refine(
    what_if: &mut WhatIf<'_, '_>,
    start: &KeptExperts,
    order: &dyn Fn(&KeptExperts) -> Vec<Exchange>,
    deadline: Instant,
    accepted: &mut dyn FnMut(&Refined) -> Result<(), EvalError>,
    progress: &mut dyn Progress,
) -> Result<Refined, EvalError> {
    let begin = Instant::now();
    let mut best = what_if.cut(start, &mut Silent)?;
    let kl_before = kl(&best);
    let mut refined = Refined {
        keep: start.clone(),
        kl: kl_before,
        kl_before,
        accepted: Vec::new(),
        tried: 0,
        exhausted: false,
    };
    let mut known: BTreeSet<Exchange> = BTreeSet::new();
    let total = deadline.saturating_duration_since(begin).as_millis().max(1);
    'rounds: loop {
        let before = refined.accepted.len();
        for exchange in order(&refined.keep) {
            if Instant::now() >= deadline {
                break 'rounds;
            }
            // What was refused once is refused until something else has changed.
            if !known.insert(exchange) {
                continue;
            }
            let Some(keep) = exchanged(&refined.keep, exchange) else { continue };
            let worse = |so_far: &Losses| is_hopeless(&best, so_far);
            let tried = match what_if.try_cut(&keep, &worse, &mut Silent) {
                Ok(tried) => tried,
                Err(error) if error.is_interrupt() => break 'rounds,
                Err(error) => return Err(error),
            };
            refined.tried += 1;
            let spent = begin.elapsed().as_millis().min(total);
            progress.update((spent * 100 / total) as u64, 100);
            let Some(losses) = tried.filter(|losses| is_better(&best, losses)) else { continue };
            refined.kl = kl(&losses);
            refined.keep = keep;
            refined.accepted.push(exchange);
            best = losses;
            accepted(&refined)?;
        }
        if refined.accepted.len() == before {
            refined.exhausted = true;
            break;
        }
        known.clear();
    }
    Ok(refined)
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
    use crate::moe::test_experts;

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

    #[test]
    fn exchange_replaces_one_expert_by_another_and_keeps_the_order() {
        let keep = KeptExperts::from([(0, vec![1, 4, 6]), (1, vec![0, 2, 3])]);
        let exchange = Exchange { layer: 0, leaves: 6, enters: 0 };
        assert_eq!(exchanged(&keep, exchange).unwrap().layer(0), Some(&[0, 1, 4][..]));
        assert_eq!(exchanged(&keep, Exchange { leaves: 5, ..exchange }), None);
        assert_eq!(exchanged(&keep, Exchange { enters: 4, ..exchange }), None);
    }

    #[test]
    fn trials_begin_next_to_the_cut_and_leave_pinned_experts_alone() {
        let experts = test_experts::experts("qwen3moe", &[(0, 6, 2), (1, 6, 2)], None);
        let scores = |values: [f64; 6]| LayerScores { value: values.to_vec(), tie: None };
        let scores = BTreeMap::from([
            (0, scores([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])),
            (1, scores([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ]);
        let keep = KeptExperts::from([(0, vec![0, 1, 2]), (1, vec![3, 4, 5])]);
        let found = exchanges(&experts, &scores, &keep, &|layer, id| (layer, id) == (1, 3), 2);
        assert_eq!(found[0], Exchange { layer: 0, leaves: 2, enters: 3 });
        assert_eq!(found[1], Exchange { layer: 1, leaves: 4, enters: 2 });
        assert!(found.iter().all(|exchange| (exchange.layer, exchange.leaves) != (1, 3)));
        assert_eq!(found.len(), 8);
    }
}
