//! What a pass would run, without running it.

use super::error::ProfileError;
use super::pass::{Prepared, ProfileOptions, prepare};
use crate::corpus::CorpusText;
use crate::llama::Model;
use crate::moe::Experts;
use crate::windows::count_batches;

/// What a pass would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The corpora, in their order; the roles of chats apart where they are counted apart.
    pub corpora: Vec<OutlineCorpus>,
    /// Batches, without those of answers.
    pub batches: u64,
    /// Tokens handed to llama.cpp at once, at most.
    pub batch_size: u32,
    /// Tokens computed at once, at most.
    pub ubatch_size: u32,
    /// Conversations that the model would answer.
    pub answers: u64,
}

/// One corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineCorpus {
    /// Its name.
    pub name: String,
    /// Its files.
    pub files: u64,
    /// Tokens that would be profiled.
    pub tokens: u64,
    /// Windows with tokens of it.
    pub windows: u64,
}

/// Says what [`super::profile`] would run. The vocabulary of `model` is enough.
///
/// # Errors
/// As [`super::profile`], as far as it fails before anything is computed.
pub fn outline(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &ProfileOptions,
) -> Result<Outline, ProfileError> {
    let Prepared { config, windows, .. } = prepare(model, experts, corpora, options)?;
    let mut found: Vec<OutlineCorpus> = windows
        .parts
        .iter()
        .map(|part| OutlineCorpus {
            name: part.name.clone(),
            files: corpora[part.corpus].texts.len() as u64,
            tokens: 0,
            windows: 0,
        })
        .collect();
    for window in windows.corpora.iter().flatten() {
        let mut in_window = vec![false; found.len()];
        for &part in &window.parts {
            found[part as usize].tokens += 1;
            in_window[part as usize] = true;
        }
        found.iter_mut().zip(in_window).for_each(|(corpus, is_in)| corpus.windows += u64::from(is_in));
    }
    let runs = windows
        .corpora
        .iter()
        .flat_map(|windows| windows.chunk_by(|a, b| a.answer.is_none() && b.answer.is_none()));
    Ok(Outline {
        batches: runs.map(|run| count_batches(&config, run)).sum(),
        // Answers have no tokens before the model writes them.
        corpora: found.into_iter().filter(|corpus| corpus.tokens > 0).collect(),
        batch_size: config.context.n_batch,
        ubatch_size: config.context.n_ubatch,
        answers: windows.n_answers(),
    })
}
