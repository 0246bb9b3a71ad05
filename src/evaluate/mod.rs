//! What a cut costs, before anything is written and after: perplexity, the divergence from the base, and the same of
//! models that run as if they had been cut.

mod bound;
#[cfg(feature = "llama")]
mod closed_loop;
mod document;
#[cfg(feature = "llama")]
mod error;
mod exchange;
mod figures;
#[cfg(feature = "llama")]
mod mask;
#[cfg(feature = "llama")]
mod measure;
mod pair;
#[cfg(feature = "llama")]
mod probes;
#[cfg(feature = "llama")]
mod reference;
#[cfg(feature = "llama")]
mod refine;
#[cfg(feature = "llama")]
mod scorer;
#[cfg(feature = "llama")]
mod softmax;
#[cfg(test)]
pub(crate) mod test_evaluation;
#[cfg(feature = "llama")]
mod texts;
#[cfg(feature = "llama")]
mod what_if;

pub use bound::{WithinBound, smallest_within};
pub use document::{
    CacheCounts, CacheRouting, EVAL_SCHEMA, EvalRow, EvalRun, EvaluatedCorpus, Evaluation, EvaluationError,
    Knee, Noise, Seen,
};
pub use exchange::{Exchange, Margin, exchanged, margins};
pub use figures::{BaseLoss, Figures, KlFigures, Mean, TokenLoss};
pub use pair::{NotOfOneModel, check_base};

#[cfg(feature = "llama")]
pub use closed_loop::{CacheLoop, LoopCounts, LoopError};
#[cfg(feature = "llama")]
pub use error::EvalError;
#[cfg(feature = "llama")]
pub use mask::{ExpertMask, MaskError};
#[cfg(feature = "llama")]
pub use measure::{Losses, measure, measure_and_keep, measure_until};
#[cfg(feature = "llama")]
pub use reference::{InStep, Reference, StoredRows};
#[cfg(feature = "llama")]
pub use refine::{Refined, is_better, refine};
#[cfg(feature = "llama")]
pub use scorer::{EvalCorpus, Scorer, Unobserved, scored};
#[cfg(feature = "llama")]
pub use texts::{TextOptions, search_parts, windows};
#[cfg(feature = "llama")]
pub use what_if::WhatIf;
