//! Which windows of which texts are measured, and what a usage knows of them.

use super::document::Seen;
use super::scorer::{EvalCorpus, scored};
use super::{EvalError, EvaluatedCorpus};
use crate::corpus::CorpusText;
use crate::llama::Model;
use crate::usage::Usage;
use crate::windows::{Cut, Window, Windows};
use std::collections::BTreeSet;

/// How texts are cut for a measurement.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Windows of each corpus, at most.
    pub chunks: Option<u32>,
    /// Whether special tokens inside plain texts are recognised.
    pub parse_special: bool,
}

/// The windows of each corpus that are measured.
///
/// Of plain texts these are the whole windows, as in `llama-perplexity`; what is left at the end of a text is dropped. Each
/// conversation is a text, and most are shorter than a window, so those keep their ends. Where `usage` left windows of a
/// corpus out of its counts, just these are measured.
///
/// # Errors
/// When a corpus has fewer than two whole windows, or a text cannot be tokenized.
pub fn windows(
    model: &Model,
    corpora: &[CorpusText],
    usage: Option<&Usage>,
    options: TextOptions,
) -> Result<Vec<(EvalCorpus, EvaluatedCorpus)>, EvalError> {
    let cut = Cut {
        n_tokens: options.ctx_size.max(1) as usize,
        limit: usize::MAX,
        parse_special: options.parse_special,
        answer: false,
    };
    let cut = Windows::cut(model.vocab(), corpora, cut)?;
    let pairs = corpora.iter().zip(cut.corpora);
    pairs.map(|(text, windows)| select(text, windows, usage, options)).collect()
}

fn select(
    text: &CorpusText,
    windows: Vec<Window>,
    usage: Option<&Usage>,
    options: TextOptions,
) -> Result<(EvalCorpus, EvaluatedCorpus), EvalError> {
    let ctx_size = options.ctx_size as usize;
    let limit = options.chunks.map_or(usize::MAX, |chunks| chunks as usize);
    let seen = usage.map(|usage| seen(text, windows.len() as u64, usage, options.ctx_size));
    let is_chat = text.chats().next().is_some();
    let (chosen, least): (Vec<Window>, usize) = match seen {
        Some((Seen::HeldOut, Some(held_out))) => {
            let windows =
                (0u64..).zip(windows).filter(|(at, _)| held_out.holds(*at)).map(|(_, window)| window);
            (windows.filter(|window| !scored(window).is_empty()).take(limit).collect(), 1)
        }
        _ => {
            let whole =
                |window: &Window| !scored(window).is_empty() && (is_chat || window.tokens.len() == ctx_size);
            (windows.into_iter().filter(whole).take(limit).collect(), 2)
        }
    };
    let least = least.min(limit);
    if chosen.len() < least {
        return Err(EvalError::TooShort {
            corpus: text.name.clone(),
            windows: chosen.len(),
            ctx_size: options.ctx_size,
            least,
        });
    }
    let corpus = EvalCorpus { name: text.name.clone(), windows: chosen };
    let entry = EvaluatedCorpus {
        name: text.name.clone(),
        files: text.texts.iter().map(|text| text.file.clone()).collect(),
        windows: corpus.windows.len() as u64,
        tokens: corpus.n_tokens(),
        scored: corpus.n_scored(),
        seen: seen.map(|(seen, _)| seen),
        other: false,
    };
    Ok((corpus, entry))
}

/// What `usage` knows of a corpus that gives `windows` windows.
fn seen(
    text: &CorpusText,
    windows: u64,
    usage: &Usage,
    ctx_size: u32,
) -> (Seen, Option<crate::usage::HeldOut>) {
    let profiled = |corpus: &crate::usage::Corpus| {
        corpus.files.iter().map(|file| file.sha256.clone()).collect::<BTreeSet<String>>()
    };
    let hashes: BTreeSet<String> = text.texts.iter().map(|text| text.file.sha256.clone()).collect();
    let known: Vec<_> =
        usage.corpora.iter().filter(|corpus| !profiled(corpus).is_disjoint(&hashes)).collect();
    if known.is_empty() {
        return (Seen::Unseen, None);
    }
    let order: Vec<&str> = text.texts.iter().map(|text| text.file.sha256.as_str()).collect();
    let same_windows = |corpus: &&crate::usage::Corpus| {
        usage.run.ctx_size == ctx_size
            && corpus.files.iter().map(|file| file.sha256.as_str()).eq(order.iter().copied())
    };
    let held_out = known.iter().filter(|corpus| same_windows(corpus)).find_map(|corpus| corpus.held_out);
    match held_out.filter(|held_out| held_out.of <= windows && known.iter().all(|one| one.held_out.is_some()))
    {
        Some(held_out) => (Seen::HeldOut, Some(held_out)),
        None => (Seen::Profiled, None),
    }
}
