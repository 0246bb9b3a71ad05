//! Small traces for tests.

use super::{Batch, Phase, RouterValues, Row, TraceLayer, TraceMeta};

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

/// A generator of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, and without, `bound`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound.max(1))) as u32
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Tokens with router values in which low ids are favoured, in sessions of `session` tokens; the first half of each
/// session is prefill in ubatches of `ubatch`.
pub(crate) fn tokens(meta: &TraceMeta, n: u32, session: u32, ubatch: u32, seed: u64) -> Batch {
    let mut random = Random(seed);
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
            let mut z: Vec<(f32, u16)> =
                (0..layer.n_expert).map(|id| (4.0 * random.unit() - id as f32 / 8.0, id as u16)).collect();
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
