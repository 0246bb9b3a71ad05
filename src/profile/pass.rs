//! The profile pass: every window of every corpus through the model, routing observed.

use super::corpus::CorpusText;
use super::nextn::NextnPass;
use super::pass_plan::PassPlan;
use super::routing::RoutingObserver;
use super::tally::{LayerShape, Tally, TallyError, check_not_all_equal};
use super::usage::{LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage};
use super::windows::{Cut, Window, Windows};
use crate::llama::{Batch, Context, FlashAttention, LlamaError, Model, Token};
use crate::moe::{ExpertLayer, Experts, Identity, LayerKind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How to profile.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// Tokens of a window.
    pub ctx_size: u32,
    /// Tokens handed to llama.cpp at once; several windows go into one batch when they fit.
    pub batch_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// Threads on the processor.
    pub threads: u32,
    /// Fused attention.
    pub flash_attention: FlashAttention,
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
    /// [`Experts::nextn_that_runs`] names one. The model has to be loaded with it.
    pub nextn: bool,
    /// When this becomes true, the pass ends with [`ProfileError::Llama`] of [`LlamaError::Interrupted`].
    pub interrupt: Option<&'static AtomicBool>,
}

/// How far a pass has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The corpus that is running.
    pub corpus: &'a str,
    /// Tokens computed, over all corpora.
    pub done: u64,
    /// Tokens to compute, over all corpora.
    pub total: u64,
}

/// Why a profile could not be made.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The model cannot be run for its routing.
    #[error("models of architecture {architecture} cannot be profiled: {reason}")]
    NoPass {
        /// The architecture.
        architecture: String,
        /// Why.
        reason: String,
    },
    /// No token in all the texts.
    #[error("the corpus {corpus:?} has no tokens: there is nothing to profile in it")]
    NoTokens {
        /// The corpus.
        corpus: String,
    },
    /// llama.cpp or an observer failed.
    #[error("{corpus:?}, after {done} of {total} tokens: {source}")]
    Window {
        /// The corpus that was running.
        corpus: String,
        /// Tokens computed, over all corpora.
        done: u64,
        /// Tokens to compute, over all corpora.
        total: u64,
        /// What went wrong.
        source: LlamaError,
    },
    /// The model gave no number to choose a token by.
    #[error(
        "{corpus:?}, after {done} of {total} tokens: the logits are not numbers, so there is no token to go on with"
    )]
    NoNextToken {
        /// The corpus that was running.
        corpus: String,
        /// Tokens computed, over all corpora.
        done: u64,
        /// Tokens to compute, over all corpora.
        total: u64,
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
                | ProfileError::Window { source: LlamaError::Interrupted, .. }
        )
    }
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The corpora with the tokens that were profiled.
    pub corpora: Vec<super::usage::Corpus>,
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

/// Runs all windows of `corpora` through `model` and counts which experts they wake.
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
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Profile, ProfileError> {
    let by_role = corpora.iter().flat_map(CorpusText::chats).any(|chat| !chat.stretches.is_empty());
    let plan = PassPlan::new(model, experts, options, by_role)?;
    let cut = Cut {
        n_tokens: options.ctx_size.max(1) as usize,
        limit: options.chunks.map_or(usize::MAX, |chunks| chunks as usize),
        parse_special: options.parse_special,
        answer: options.generate.is_some(),
    };
    let windows = Windows::cut(model.vocab(), corpora, cut)?;
    if let Some((corpus, _)) = corpora.iter().zip(&windows.corpora).find(|(_, windows)| windows.is_empty()) {
        return Err(ProfileError::NoTokens { corpus: corpus.name.clone() });
    }
    let mut shapes = self::shapes(experts, |layer| layer.kind != LayerKind::NextN);
    let nextn_shapes = self::shapes(experts, |layer| plan.nextn == Some(layer.layer));
    let mut nextn_tally = Tally::new(nextn_shapes.clone(), options.weights, windows.parts.len());
    let mut tally = Tally::new(shapes.clone(), options.weights, windows.parts.len());
    let answer_tokens = options.generate.map_or(0, u64::from);
    let mut pass = Pass {
        model,
        options,
        encode: plan.encode,
        context: Context::new(model, &plan.context)?,
        batch: Batch::new(),
        observer: match RoutingObserver::new(&mut tally, options.weights) {
            observer if plan.routing_only => observer.stopping_early(),
            observer => observer,
        },
        nextn: plan
            .nextn
            .map(|_| NextnPass::new(model, &plan.context, &mut nextn_tally, options.weights))
            .transpose()?,
        done: 0,
        total: windows.n_tokens() + windows.n_answers() * answer_tokens,
        progress,
    };
    let begin = Instant::now();
    for (corpus, windows) in corpora.iter().zip(&windows.corpora) {
        pass.tell(&corpus.name);
        for group in windows.chunks(plan.context.n_seq as usize) {
            pass.windows(&corpus.name, group)?;
            if let [Window { tokens, answer: Some(part), .. }] = group {
                pass.answer(&corpus.name, tokens.len() as u32, *part)?;
            }
        }
        // What cannot be right is said after the first corpus, not after the last.
        pass.observer.tally().map_err(LlamaError::from)?.check()?;
        if let Some(nextn) = &mut pass.nextn {
            nextn.observer.tally().map_err(LlamaError::from)?.check()?;
        }
    }
    let wall = begin.elapsed();
    drop(pass);
    shapes.extend(nextn_shapes);

    let tokens = tally.tokens().to_vec();
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
        .chain(nextn_tally.finish()?)
        .map(|(layer, parts)| {
            let shape = shapes[&layer];
            let names = windows.parts.iter().map(|part| part.name.clone());
            let apart = names.zip(parts).filter(|(_, sums)| sums.n_tokens > 0);
            let usage = LayerUsage::join(layer, shape.n_expert_used, apart.collect());
            check_not_all_equal(layer, shape.n_expert_used, &usage.total).map(|()| usage)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let corpora = (0..tokens.len())
        .filter(counted)
        .map(|at| corpora[windows.parts[at].corpus].entry(&windows.parts[at].name, tokens[at]))
        .collect();
    Ok(Profile {
        corpora,
        layers,
        batch_size: plan.context.n_batch,
        ubatch_size: plan.context.n_ubatch,
        wall,
        remarks,
    })
}

/// The shapes of the layers that are `wanted`.
fn shapes(experts: &Experts, wanted: impl Fn(&ExpertLayer) -> bool) -> BTreeMap<u32, LayerShape> {
    let shape = |layer: &ExpertLayer| LayerShape { n_expert: layer.n_expert, n_expert_used: layer.n_used };
    experts.layers.iter().filter(|layer| wanted(layer)).map(|layer| (layer.layer, shape(layer))).collect()
}

/// A pass that is running.
struct Pass<'p> {
    model: &'p Model,
    options: &'p ProfileOptions,
    encode: bool,
    context: Context<'p>,
    batch: Batch,
    observer: RoutingObserver<'p>,
    nextn: Option<NextnPass<'p, 'p>>,
    done: u64,
    total: u64,
    progress: &'p mut dyn FnMut(Progress<'_>),
}

impl Pass<'_> {
    fn tell(&mut self, corpus: &str) {
        (self.progress)(Progress { corpus, done: self.done, total: self.total });
    }

    /// Computes windows, each from an empty context.
    fn windows(&mut self, corpus: &str, group: &[Window]) -> Result<(), ProfileError> {
        self.batch.clear();
        let mut parts = Vec::new();
        for (sequence, window) in group.iter().enumerate() {
            self.batch.push(sequence as u32, 0, &window.tokens);
            parts.extend_from_slice(&window.parts);
        }
        self.context.clear();
        self.compute(corpus, &parts)?;
        let Some(nextn) = &mut self.nextn else { return Ok(()) };
        let (done, total) = (self.done, self.total);
        group
            .iter()
            .try_for_each(|window| nextn.window(&self.context, window))
            .map_err(|source| ProfileError::Window { corpus: corpus.to_owned(), done, total, source })
    }

    /// Lets the model go on after a window of `position` tokens: each time the likeliest token, until it ends or has
    /// said enough. The token that ends an answer is not computed, so it does not count.
    fn answer(&mut self, corpus: &str, position: u32, part: u32) -> Result<(), ProfileError> {
        let limit = self.options.generate.unwrap_or(0);
        for at in 0..limit {
            let logits = self.batch.len().checked_sub(1).and_then(|last| self.context.logits(last));
            let Some(token) = logits.and_then(likeliest) else {
                let (corpus, done, total) = (corpus.to_owned(), self.done, self.total);
                return Err(ProfileError::NoNextToken { corpus, done, total });
            };
            if self.model.vocab().is_end_of_generation(token) {
                self.total -= u64::from(limit - at);
                self.tell(corpus);
                break;
            }
            self.batch.clear();
            self.batch.push(0, position + at, &[token]);
            self.compute(corpus, &[part])?;
        }
        Ok(())
    }

    /// Computes the batch, whose tokens count for `parts`.
    fn compute(&mut self, corpus: &str, parts: &[u32]) -> Result<(), ProfileError> {
        let interrupted = self.options.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
        let outcome = if interrupted {
            Err(LlamaError::Interrupted)
        } else {
            self.observer.begin_batch(parts).map_err(LlamaError::from).and_then(|()| {
                if self.encode {
                    self.context.encode(&mut self.batch, &mut self.observer)
                } else {
                    self.context.decode(&mut self.batch, &mut self.observer)
                }
            })
        };
        let (done, total) = (self.done, self.total);
        outcome.map_err(|source| ProfileError::Window { corpus: corpus.to_owned(), done, total, source })?;
        self.done += self.batch.len() as u64;
        self.tell(corpus);
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
