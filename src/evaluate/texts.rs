//! Which windows of which texts are measured, and what a usage knows of them.

use super::document::Seen;
use super::error::MIN_WINDOW;
use super::scorer::{EvalCorpus, scored};
use super::{EvalError, EvaluatedCorpus};
use crate::corpus::CorpusText;
use crate::llama::Model;
use crate::progress::Interrupt;
use crate::usage::{HeldOut, Usage};
use crate::windows::{Cut, Window, WindowOptions, Windows};
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
    /// When it comes, the cutting ends.
    pub interrupt: Interrupt,
}

impl TextOptions {
    /// Texts cut for a pass that runs so.
    pub fn of(pass: &WindowOptions, chunks: Option<u32>, parse_special: bool) -> TextOptions {
        TextOptions { ctx_size: pass.ctx_size, chunks, parse_special, interrupt: pass.settings.interrupt }
    }

    /// How texts are cut into windows, `limit` of each corpus at most.
    fn cut(&self, limit: Option<u32>) -> Result<Cut, EvalError> {
        if self.ctx_size < MIN_WINDOW {
            return Err(EvalError::NothingToScore { ctx_size: self.ctx_size });
        }
        Ok(Cut {
            n_tokens: self.ctx_size as usize,
            limit: limit.map_or(usize::MAX, |limit| limit as usize),
            parse_special: self.parse_special,
            answer: false,
            interrupt: self.interrupt,
        })
    }
}

/// The windows of each corpus that are measured.
///
/// Of plain texts these are the whole windows, as in `llama-perplexity`; what is left at the end of a text is dropped. Each
/// conversation is a text, and most are shorter than a window, so those keep their ends. Where `usage` left windows of a
/// corpus out of its counts, just these are measured.
///
/// # Errors
/// When windows are too small to score a token, a corpus has fewer than two whole ones, or a text cannot be tokenized.
pub fn windows(
    model: &Model,
    corpora: &[CorpusText],
    usage: Option<&Usage>,
    options: TextOptions,
) -> Result<Vec<(EvalCorpus, EvaluatedCorpus)>, EvalError> {
    let cut = Windows::cut(model.vocab(), corpora, options.cut(None)?)?;
    let pairs = corpora.iter().zip(cut.corpora);
    pairs.map(|(text, windows)| select(text, windows, usage, options)).collect()
}

/// The windows of a search: those that it looks at, the windows of the corpora one by one so that each part of them has
/// some of all, and for each corpus those that it never sees. The latter are the ones that `usage` left out of its counts,
/// or one window in four.
///
/// # Errors
/// As [`windows`].
pub fn search_parts(
    model: &Model,
    corpora: &[CorpusText],
    usage: &Usage,
    options: TextOptions,
) -> Result<(EvalCorpus, Vec<(EvalCorpus, EvaluatedCorpus)>), EvalError> {
    let cut = Windows::cut(model.vocab(), corpora, options.cut(options.chunks)?)?;
    let mut looked_at = Vec::new();
    let mut unseen = Vec::new();
    for (text, windows) in corpora.iter().zip(cut.corpora) {
        let n_windows = windows.len() as u64;
        let (seen, held_out) = match seen(text, n_windows, usage, options.ctx_size) {
            (seen, Some(held_out)) => (seen, held_out),
            (seen, None) => (seen, HeldOut { every: 4, of: n_windows }),
        };
        let is_chat = text.chats().next().is_some();
        let whole = |window: &Window| {
            !scored(window).is_empty() && (is_chat || window.tokens.len() == options.ctx_size as usize)
        };
        let numbered = (0u64..).zip(windows).filter(|(_, window)| whole(window));
        let (out, rest): (Vec<_>, Vec<_>) = numbered.partition(|(at, _)| held_out.holds(*at));
        if out.is_empty() || rest.is_empty() {
            let (corpus, windows) = (text.name.clone(), out.len().min(rest.len()));
            return Err(EvalError::TooShort { corpus, windows, ctx_size: options.ctx_size, least: 1 });
        }
        let n_rest = rest.len();
        let share = rest.into_iter().enumerate().map(|(at, (_, window))| (at as f64 / n_rest as f64, window));
        looked_at.extend(share);
        let corpus = EvalCorpus {
            name: text.name.clone(),
            windows: out.into_iter().map(|(_, window)| window).collect(),
        };
        let entry = entry(text, &corpus, Some(seen));
        unseen.push((corpus, entry));
    }
    looked_at.sort_by(|a, b| a.0.total_cmp(&b.0));
    let windows = looked_at.into_iter().map(|(_, window)| window).collect();
    Ok((EvalCorpus { name: "search".into(), windows }, unseen))
}

fn entry(text: &CorpusText, corpus: &EvalCorpus, seen: Option<Seen>) -> EvaluatedCorpus {
    EvaluatedCorpus {
        name: text.name.clone(),
        files: text.texts.iter().map(|text| text.file.clone()).collect(),
        windows: corpus.windows.len() as u64,
        tokens: corpus.n_tokens(),
        scored: corpus.n_scored(),
        seen,
        other: false,
    }
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
    let entry = entry(text, &corpus, seen.map(|(seen, _)| seen));
    Ok((corpus, entry))
}

/// What `usage` knows of a corpus that gives `windows` windows.
fn seen(text: &CorpusText, windows: u64, usage: &Usage, ctx_size: u32) -> (Seen, Option<HeldOut>) {
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
