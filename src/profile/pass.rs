//! The profile pass: every window of every corpus through the model, routing observed.

use super::corpus::CorpusText;
use super::nextn::NextnPass;
use super::routing::RoutingObserver;
use super::tally::{LayerShape, Tally, TallyError, check_not_all_equal};
use super::usage::{ExpertSums, LayerUsage, ProfiledModel, Run, USAGE_SCHEMA, Usage};
use crate::llama::{Batch, Context, ContextOptions, FlashAttention, LlamaError, Model, Outputs, Part, Token};
use crate::moe::{ExpertLayer, Experts, Identity, LayerKind, ProfilePass};
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
}

/// Runs all windows of `corpora` through `model` and counts which experts they wake.
///
/// Each text is tokenized as a whole and cut into windows of `ctx_size` tokens, the last one shorter; every window
/// starts from an empty context. Where the model begins a text with a token of its own (BOS), that token takes the place
/// of each window's first, as in `llama-perplexity` and `llama-imatrix`.
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
    let plan = PassPlan::new(model, experts, options)?;
    let windows =
        corpora.iter().map(|corpus| Windows::cut(model, corpus, options)).collect::<Result<Vec<_>, _>>()?;
    let total = windows.iter().map(Windows::n_tokens).sum();

    let shapes_of = |wanted: &dyn Fn(&ExpertLayer) -> bool| -> BTreeMap<u32, LayerShape> {
        let shape =
            |layer: &ExpertLayer| LayerShape { n_expert: layer.n_expert, n_expert_used: layer.n_used };
        experts.layers.iter().filter(|layer| wanted(layer)).map(|layer| (layer.layer, shape(layer))).collect()
    };
    let mut shapes = shapes_of(&|layer| layer.kind != LayerKind::NextN);
    let nextn_shapes = shapes_of(&|layer| plan.nextn == Some(layer.layer));
    let mut nextn_tally = Tally::new(nextn_shapes.clone(), options.weights);
    let mut nextn = plan
        .nextn
        .map(|_| NextnPass::new(model, &plan.context, &mut nextn_tally, options.weights))
        .transpose()?;
    let mut tally = Tally::new(shapes.clone(), options.weights);
    let mut observer = RoutingObserver::new(&mut tally, options.weights);
    let mut context = Context::new(model, &plan.context)?;
    let mut batch = Batch::new();

    let begin = Instant::now();
    let mut done = 0;
    let mut sums: Vec<BTreeMap<u32, ExpertSums>> = Vec::with_capacity(corpora.len());
    for (corpus, windows) in corpora.iter().zip(&windows) {
        progress(Progress { corpus: &corpus.name, done, total });
        for group in windows.0.chunks(plan.context.n_seq as usize) {
            batch.clear();
            for (sequence, window) in group.iter().enumerate() {
                batch.push(sequence as u32, 0, window);
            }
            let interrupted = options.interrupt.is_some_and(|flag| flag.load(Ordering::Relaxed));
            let outcome = if interrupted {
                Err(LlamaError::Interrupted)
            } else if plan.encode {
                context.encode(&mut batch, &mut observer)
            } else {
                context.clear();
                context.decode(&mut batch, &mut observer)
            };
            let outcome = outcome.and_then(|()| match &mut nextn {
                Some(nextn) => group.iter().try_for_each(|window| nextn.window(&context, window)),
                None => Ok(()),
            });
            outcome.map_err(|source| ProfileError::Window {
                corpus: corpus.name.clone(),
                done,
                total,
                source,
            })?;
            done += batch.len() as u64;
            progress(Progress { corpus: &corpus.name, done, total });
        }
        let tally = observer.tally().map_err(LlamaError::from)?;
        let mut taken = tally.take(windows.n_tokens())?;
        if let Some(nextn) = &mut nextn {
            let tally = nextn.observer.tally().map_err(LlamaError::from)?;
            taken.extend(tally.take(windows.n_steps())?);
        }
        sums.push(taken);
    }
    shapes.extend(nextn_shapes);
    let wall = begin.elapsed();

    let layers = shapes
        .iter()
        .map(|(&layer, shape)| {
            let apart =
                corpora.iter().zip(&sums).map(|(corpus, sums)| (corpus.name.clone(), sums[&layer].clone()));
            let usage = LayerUsage::join(layer, shape.n_expert_used, apart.collect());
            check_not_all_equal(layer, shape.n_expert_used, &usage.total).map(|()| usage)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let corpora =
        corpora.iter().zip(&windows).map(|(corpus, windows)| corpus.entry(windows.n_tokens())).collect();
    Ok(Profile {
        corpora,
        layers,
        batch_size: plan.context.n_batch,
        ubatch_size: plan.context.n_ubatch,
        wall,
    })
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

/// How the windows are run: through which entry, and in what context.
struct PassPlan {
    context: ContextOptions,
    encode: bool,
    /// The NextN layer that is run behind the trunk.
    nextn: Option<u32>,
}

impl PassPlan {
    fn new(model: &Model, experts: &Experts, options: &ProfileOptions) -> Result<PassPlan, ProfileError> {
        let pass = experts.family.map_or(ProfilePass::Headless, |family| family.profile);
        let encode = match pass {
            ProfilePass::Impossible(reason) => {
                let architecture = experts.architecture.clone();
                return Err(ProfileError::NoPass { architecture, reason: reason.to_owned() });
            }
            ProfilePass::NonCausal => true,
            _ => model.is_diffusion(),
        };
        let nextn = experts.nextn_that_runs().filter(|_| options.nextn && !encode);
        // The states that a NextN block goes on from are those of an ordinary pass, of one sequence.
        let headless = nextn.is_none() && !options.lm_head && !matches!(pass, ProfilePass::Logits(_));
        let outputs = if headless { Outputs::None } else { Outputs::Logits };
        let n_ctx = options.ctx_size.max(1);
        // Logits of every token of a batch are kept at once: one window is enough of them.
        let n_seq = if headless && !encode { (options.batch_size / n_ctx).max(1) } else { 1 };
        let n_batch = n_ctx.saturating_mul(n_seq);
        // A model that looks at later tokens needs the whole window at once.
        let n_ubatch = if encode { n_batch } else { options.ubatch_size.clamp(1, n_batch) };
        let context = ContextOptions {
            n_ctx,
            n_seq,
            n_batch,
            n_ubatch,
            threads: options.threads,
            outputs,
            flash_attention: options.flash_attention,
            part: if nextn.is_some() { Part::TrunkWithStates } else { Part::Trunk },
            exact_cache: false,
            interrupt: options.interrupt,
        };
        Ok(PassPlan { context, encode, nextn })
    }
}

/// The windows of one corpus, in order.
struct Windows(Vec<Vec<Token>>);

impl Windows {
    fn cut(model: &Model, corpus: &CorpusText, options: &ProfileOptions) -> Result<Windows, ProfileError> {
        let vocab = model.vocab();
        let bos = vocab.leading_bos();
        let limit = options.chunks.map_or(usize::MAX, |chunks| chunks as usize);
        let mut windows = Vec::new();
        for text in &corpus.texts {
            if windows.len() >= limit {
                break;
            }
            let tokens = vocab.tokenize(&text.content, options.parse_special)?;
            for piece in tokens.chunks(options.ctx_size.max(1) as usize).take(limit - windows.len()) {
                let mut window = piece.to_vec();
                if let (Some(bos), Some(first)) = (bos, window.first_mut()) {
                    *first = bos;
                }
                windows.push(window);
            }
        }
        if windows.is_empty() {
            return Err(ProfileError::NoTokens { corpus: corpus.name.clone() });
        }
        Ok(Windows(windows))
    }

    fn n_tokens(&self) -> u64 {
        self.0.iter().map(|window| window.len() as u64).sum()
    }

    /// Steps of a NextN block: the first token of a window has none before it.
    fn n_steps(&self) -> u64 {
        self.0.iter().map(|window| window.len() as u64 - 1).sum()
    }
}
