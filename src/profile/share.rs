//! Which batches a pass takes of a run that is shared out.

use super::error::ProfileError;
use crate::llama::{ContextOptions, FlashAttention};
use crate::usage::Part;
use crate::windows::{PassConfig, Window, groups};
use std::ops::Range;

/// Every `of`-th batch, from the `index`-th on, which counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The first batch.
    pub index: u32,
    /// Of so many batches one.
    pub of: u32,
}

/// The windows of each corpus that are computed, by the runs that they go in, and which part of a whole they are.
pub(super) struct Taken {
    pub runs: Vec<Vec<Range<usize>>>,
    pub part: Option<Part>,
}

impl Taken {
    /// All windows, or those of a share. A window that is answered is a run of its own.
    pub fn of(
        config: &PassConfig,
        corpora: &[Vec<Window>],
        share: Option<Share>,
    ) -> Result<Taken, ProfileError> {
        let runs: Vec<Vec<Range<usize>>> = corpora.iter().map(|windows| runs(windows)).collect();
        let Some(share) = share.filter(|share| share.of > 1) else { return Ok(Taken { runs, part: None }) };
        let mut batches = 0_u64;
        let mut taken = Vec::with_capacity(runs.len());
        for (windows, runs) in corpora.iter().zip(runs) {
            let mut of_corpus = Vec::new();
            for run in runs {
                for group in groups(config, &windows[run.clone()]) {
                    if batches % u64::from(share.of) + 1 == u64::from(share.index) {
                        of_corpus.push(run.start + group.start..run.start + group.end);
                    }
                    batches += 1;
                }
            }
            taken.push(of_corpus);
        }
        if batches < u64::from(share.of) {
            return Err(ProfileError::TooManyParts { parts: share.of, batches });
        }
        let tokens = corpora.iter().flatten().map(|window| window.tokens.len() as u64).sum();
        let settings = settings(&config.context);
        let part = Part { index: share.index, of: share.of, batches, tokens, settings };
        Ok(Taken { runs: taken, part: Some(part) })
    }

    /// The windows that are computed.
    pub fn windows<'w>(&'w self, corpora: &'w [Vec<Window>]) -> impl Iterator<Item = &'w Window> {
        let runs = self.runs.iter().zip(corpora);
        runs.flat_map(|(runs, windows)| runs.iter().flat_map(|run| &windows[run.clone()]))
    }
}

/// Windows that are computed one after the other, apart from those that are answered.
fn runs(windows: &[Window]) -> Vec<Range<usize>> {
    let mut begin = 0;
    let chunks = windows.chunk_by(|a, b| a.answer.is_none() && b.answer.is_none());
    chunks
        .map(|chunk| {
            let run = begin..begin + chunk.len();
            begin = run.end;
            run
        })
        .collect()
}

/// What decides how a batch is computed, beside what every usage says of its run.
fn settings(context: &ContextOptions) -> Vec<String> {
    let settings = &context.settings;
    let attention = match settings.flash_attention {
        FlashAttention::Auto => "auto",
        FlashAttention::Off => "off",
        FlashAttention::On => "on",
    };
    vec![
        format!("flash-attn={attention}"),
        format!("cache-type-k={}", settings.cache_k),
        format!("cache-type-v={}", settings.cache_v),
        format!("kv-offload={}", settings.kv_offload),
    ]
}
