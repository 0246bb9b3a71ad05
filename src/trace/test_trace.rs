//! Small traces for tests.

use super::{Batch, Phase, RouterValues, Row, TraceLayer, TraceMeta};
use crate::random::SplitMix;

/// A header of layers with these experts, used experts and bytes an expert; all experts are candidates of the largest.
pub(crate) fn meta(layers: &[(u32, u32, u64)], values: RouterValues) -> TraceMeta {
    let candidates = layers.iter().map(|(n_expert, ..)| *n_expert).max().unwrap_or(0);
    let layers = (0..)
        .zip(layers)
        .map(|(layer, &(n_expert, n_expert_used, bytes))| TraceLayer {
            layer,
            n_expert,
            n_expert_used,
            slabs: vec![bytes],
        })
        .collect();
    TraceMeta::new(layers, candidates, values)
}

/// Tokens with router values in which low ids are favoured, in sessions of `session` tokens; the first half of each
/// session is prefill in ubatches of `ubatch`.
pub(crate) fn tokens(meta: &TraceMeta, n: u32, session: u32, ubatch: u32, seed: u64) -> Batch {
    let mut random = SplitMix(seed);
    let mut batch = Batch::default();
    let mut number = 0;
    for token in 0..n {
        let position = token % session;
        let phase = if position < session / 2 { Phase::Prefill } else { Phase::Decode };
        if phase == Phase::Decode || position.is_multiple_of(ubatch) {
            number += 1;
        }
        let (session, turn) = (token / session, position / 4);
        batch.rows.push(Row { session, turn, phase, ubatch: number, position, token: token as i32 });
        for layer in &meta.layers {
            let mut z: Vec<(f32, u16)> = (0..layer.n_expert)
                .map(|id| (4.0 * random.unit() as f32 - id as f32 / 8.0, id as u16))
                .collect();
            z.sort_by(|a, b| b.0.total_cmp(&a.0));
            let width = meta.candidates as usize;
            let n = z.len() as f32;
            let mean = z.iter().map(|(z, _)| z).sum::<f32>() / n;
            let variance = z.iter().map(|(z, _)| (z - mean) * (z - mean)).sum::<f32>() / n;
            if meta.router_values != RouterValues::None {
                batch.z_min.push(z.last().map_or(0.0, |last| last.0));
                batch.z_mean.push(mean);
                batch.z_std.push(variance.sqrt());
                batch.values.extend(z.iter().map(|(z, _)| *z).chain(std::iter::repeat(f32::MIN)).take(width));
            }
            batch
                .ids
                .extend(z.iter().map(|(_, id)| *id).chain(std::iter::repeat(super::NO_EXPERT)).take(width));
        }
    }
    batch
}
