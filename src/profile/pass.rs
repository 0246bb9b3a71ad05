//! The profile pass: every window of every corpus through the model, routing observed.

use super::halves::Halves;
use super::mtp_pass::MtpPass;
use super::routing::RoutingObserver;
use super::tally::{LayerShape, Tally, TallyError};
use crate::corpus::CorpusText;
use crate::llama::{LlamaError, Model, Token};
use crate::moe::{ExpertLayer, Experts, Identity, LayerKind};
use crate::progress::Progress;
use crate::usage::{Corpus, LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage, check_not_all_equal};
use crate::windows::{Cut, NoPass, PassConfig, PassError, PassNeeds, Runner, Window, WindowOptions, Windows};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How to profile.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// Sizes and settings of the pass.
    pub windows: WindowOptions,
    /// Windows of each corpus, at most.
    pub chunks: Option<u32>,
    /// Whether gate weights are summed as well.
    pub weights: bool,
    /// Whether special tokens inside the texts are recognised.
    pub parse_special: bool,
    /// Lets the model answer each conversation with this many tokens at most, which are counted apart.
    pub generate: Option<u32>,
    /// Whether the logits are computed even where the routing can be had without.
    pub lm_head: bool,
    /// Whether the routing in the block of multi-token prediction is watched as well, where
    /// [`Experts::mtp_that_runs`] names one. The model has to be loaded with it.
    pub mtp: bool,
}

/// Why a profile could not be made.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The model cannot be run for its routing.
    #[error(transparent)]
    NoPass(#[from] NoPass),
    /// No token in all the texts.
    #[error("the corpus {corpus:?} has no tokens: there is nothing to profile in it")]
    NoTokens {
        /// The corpus.
        corpus: String,
    },
    /// llama.cpp or an observer failed.
    #[error("{corpus:?}, {error}")]
    Window {
        /// The corpus that was running.
        corpus: String,
        /// How far the pass had come, and what went wrong.
        error: PassError,
    },
    /// The model gave no number to choose a token by.
    #[error("{corpus:?}: the logits are not numbers, so there is no token to go on with")]
    NoNextToken {
        /// The corpus that was running.
        corpus: String,
    },
    /// llama.cpp failed before the first window.
    #[error(transparent)]
    Llama(#[from] LlamaError),
    /// The figures cannot be right.
    #[error(transparent)]
    Tally(#[from] TallyError),
}

impl ProfileError {
    /// Whether the user ended the pass.
    pub fn is_interrupt(&self) -> bool {
        matches!(
            self,
            ProfileError::Llama(LlamaError::Interrupted)
                | ProfileError::Window { error: PassError { error: LlamaError::Interrupted, .. }, .. }
        )
    }
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The corpora with the tokens that were profiled.
    pub corpora: Vec<Corpus>,
    /// The layers.
    pub layers: Vec<LayerUsage>,
    /// Tokens handed to llama.cpp at once.
    pub batch_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// From the first to the last window.
    pub wall: Duration,
    /// What is not as one may expect.
    pub remarks: Vec<String>,
}

/// Runs all windows of `corpora` through `model` and counts which experts they activate.
///
/// Each text is tokenized as a whole and cut into windows of `ctx_size` tokens, the last one shorter; every window
/// starts from an empty context. Where the model begins a text with a token of its own (BOS), that token takes the place
/// of each window's first, as in `llama-perplexity` and `llama-imatrix`.
///
/// A conversation is a text. The tokens of chats that were rendered by role count for `CORPUS/ROLE`; an answer follows
/// the last window of its conversation in the same context, and counts for `CORPUS/generated`.
///
/// # Errors
/// See [`ProfileError`].
pub fn profile(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &ProfileOptions,
    progress: &mut dyn Progress,
) -> Result<Profile, ProfileError> {
    let answer_tokens = options.generate.unwrap_or(0);
    let mtp = experts.mtp_that_runs().filter(|_| options.mtp);
    let needs = PassNeeds {
        logits: options.lm_head || answer_tokens > 0,
        states: mtp.is_some(),
        // One batch would hold tokens that count for several parts.
        one_window: corpora.iter().flat_map(CorpusText::chats).any(|chat| !chat.spans.is_empty()),
        room: answer_tokens,
    };
    let config = PassConfig::new(model, experts, &options.windows, needs)?;
    let mtp = mtp.filter(|_| !config.encode);
    let cut = Cut {
        n_tokens: options.windows.ctx_size.max(1) as usize,
        limit: options.chunks.map_or(usize::MAX, |chunks| chunks as usize),
        parse_special: options.parse_special,
        answer: options.generate.is_some(),
    };
    let mut windows = Windows::cut(model.vocab(), corpora, cut)?;
    let halves = Halves::of(windows.parts.len());
    for windows in &mut windows.corpora {
        let n_windows = windows.len();
        for (at, window) in windows.iter_mut().enumerate() {
            let offset = halves.offset(at, n_windows);
            window.parts.iter_mut().chain(&mut window.answer).for_each(|part| *part += offset);
        }
    }
    let windows = windows;
    if let Some((corpus, _)) = corpora.iter().zip(&windows.corpora).find(|(_, windows)| windows.is_empty()) {
        return Err(ProfileError::NoTokens { corpus: corpus.name.clone() });
    }
    let mut shapes = self::shapes(experts, |layer| layer.kind != LayerKind::Mtp);
    let mtp_shapes = self::shapes(experts, |layer| mtp == Some(layer.layer));
    let mut mtp_tally = Tally::new(mtp_shapes.clone(), options.weights, halves.n_parts());
    let mut tally = Tally::new(shapes.clone(), options.weights, halves.n_parts());
    let total = windows.n_tokens() + windows.n_answers() * u64::from(answer_tokens);
    let mut pass = Pass {
        model,
        answer_tokens,
        runner: Runner::new(model, &config, total, progress)?,
        observer: match RoutingObserver::new(&mut tally, options.weights) {
            observer if config.headless => observer.stopping_early(),
            observer => observer,
        },
        mtp: mtp
            .map(|_| MtpPass::new(model, &config.context, &mut mtp_tally, options.weights))
            .transpose()?,
    };
    let begin = Instant::now();
    for (corpus, windows) in corpora.iter().zip(&windows.corpora) {
        pass.runner.name(&corpus.name);
        for group in windows.chunks(config.windows_per_batch()) {
            pass.windows(&corpus.name, group)?;
            if let [Window { tokens, answer: Some(part), .. }] = group {
                pass.answer(&corpus.name, tokens.len() as u32, *part)?;
            }
        }
        // What cannot be right is said after the first corpus, not after the last.
        pass.observer.tally().map_err(LlamaError::from)?.check()?;
        if let Some(mtp) = &mut pass.mtp {
            mtp.observer.tally().map_err(LlamaError::from)?.check()?;
        }
    }
    let wall = begin.elapsed();
    drop(pass);
    shapes.extend(mtp_shapes);

    let tokens = halves.tokens(tally.tokens());
    let mut remarks = Vec::new();
    if windows.answers_without_beginning > 0 {
        remarks.push(format!(
            "{} conversations are longer than a window: their answers follow the last window alone; a larger -c shows the model more",
            windows.answers_without_beginning
        ));
    }
    // A part has no tokens when the model has nothing to answer.
    let counted = |part: &usize| tokens[*part] > 0;
    for (part, _) in windows.parts.iter().zip(&tokens).filter(|(_, tokens)| **tokens == 0) {
        remarks.push(format!("{}: not a single token was generated, so there is no such corpus", part.name));
    }
    let layers = tally
        .finish()?
        .into_iter()
        .chain(mtp_tally.finish()?)
        .map(|(layer, parts)| {
            let shape = shapes[&layer];
            let (all, half) = halves.join(windows.parts.iter().map(|part| part.name.as_str()), parts);
            let usage = LayerUsage { half, ..LayerUsage::join(layer, shape.n_expert_used, all) };
            check_not_all_equal(layer, shape.n_expert_used, &usage.total)
                .map(|()| usage)
                .map_err(TallyError::from)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let corpora = (0..tokens.len())
        .filter(counted)
        .map(|at| corpora[windows.parts[at].corpus].entry(&windows.parts[at].name, tokens[at]))
        .collect();
    Ok(Profile {
        corpora,
        layers,
        batch_size: config.context.n_batch,
        ubatch_size: config.context.n_ubatch,
        wall,
        remarks,
    })
}

/// The shapes of the layers that are `wanted`.
fn shapes(experts: &Experts, wanted: impl Fn(&ExpertLayer) -> bool) -> BTreeMap<u32, LayerShape> {
    let shape =
        |layer: &ExpertLayer| LayerShape { n_expert: layer.n_expert, n_expert_used: layer.n_expert_used };
    experts.layers.iter().filter(|layer| wanted(layer)).map(|layer| (layer.layer, shape(layer))).collect()
}

/// A pass that is running.
struct Pass<'p> {
    model: &'p Model,
    answer_tokens: u32,
    runner: Runner<'p, 'p>,
    observer: RoutingObserver<'p>,
    mtp: Option<MtpPass<'p, 'p>>,
}

impl Pass<'_> {
    /// Computes windows, each from an empty context, and the MTP block behind them.
    fn windows(&mut self, corpus: &str, group: &[Window]) -> Result<(), ProfileError> {
        let failed = |error| ProfileError::Window { corpus: corpus.to_owned(), error };
        self.runner.run(group, &mut self.observer).map_err(failed)?;
        let Some(mtp) = &mut self.mtp else { return Ok(()) };
        group
            .iter()
            .try_for_each(|window| mtp.window(self.runner.context(), window))
            .map_err(|error| failed(self.runner.failed(error)))
    }

    /// Lets the model go on after a window of `position` tokens: each time the likeliest token, until it ends or has
    /// said enough. The token that ends an answer is not computed, so it does not count.
    fn answer(&mut self, corpus: &str, position: u32, part: u32) -> Result<(), ProfileError> {
        for at in 0..self.answer_tokens {
            let Some(token) = self.runner.last_logits().and_then(likeliest) else {
                return Err(ProfileError::NoNextToken { corpus: corpus.to_owned() });
            };
            if self.model.vocab().is_end_of_generation(token) {
                self.runner.expect_fewer(u64::from(self.answer_tokens - at));
                break;
            }
            self.runner
                .follow((position + at, token), part, &mut self.observer)
                .map_err(|error| ProfileError::Window { corpus: corpus.to_owned(), error })?;
        }
        Ok(())
    }
}

/// The token with the greatest logit, the first of several; none when no logit is a number.
fn likeliest(logits: &[f32]) -> Option<Token> {
    let numbers = logits.iter().enumerate().filter(|(_, logit)| !logit.is_nan());
    let best = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.and_then(|(token, _)| Token::try_from(token).ok())
}

impl Profile {
    /// The usage file of this profile.
    pub fn into_usage(
        self,
        file: &Path,
        identity: &Identity,
        llama_cpp: String,
        devices: Vec<String>,
        ctx_size: u32,
    ) -> Usage {
        Usage {
            schema: USAGE_SCHEMA.to_owned(),
            model: ProfiledModel::new(file, identity),
            run: Run {
                moeslice: env!("CARGO_PKG_VERSION").to_owned(),
                llama_cpp: Some(llama_cpp),
                imported_from: None,
                merged_from: Vec::new(),
                devices,
                ctx_size,
                batch_size: self.batch_size,
                ubatch_size: self.ubatch_size,
                wall_seconds: self.wall.as_secs_f64(),
            },
            corpora: self.corpora,
            layers: self.layers,
        }
    }
}
