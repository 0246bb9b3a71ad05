//! The profile pass: every window of every corpus through the model, routing observed.

use super::counting::Counting;
use super::error::ProfileError;
use super::halves::Halves;
use super::mtp_pass::MtpPass;
use super::norms::NormsObserver;
use super::profiled::Profile;
use super::routing::RoutingObserver;
use super::sampler::likeliest;
use super::share::{Share, Taken};
use super::tally::{LayerShape, Tally, TallyError};
use crate::corpus::CorpusText;
use crate::llama::{LlamaError, Model, ModelPart};
use crate::moe::{ExpertLayer, Experts, LayerKind};
use crate::preflight::Wanted;
use crate::progress::Progress;
use crate::usage::{Corpus, HeldOut, LayerUsage, check_not_all_equal};
use crate::windows::{
    CorpusPart, Cut, NoPass, PassConfig, PassNeeds, Runner, Window, WindowOptions, Windows,
};
use std::collections::BTreeMap;
use std::time::Instant;

/// How to profile.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// Sizes and settings of the pass.
    pub windows: WindowOptions,
    /// Windows of each corpus, at most.
    pub chunks: Option<u32>,
    /// Whether gate weights are summed as well.
    pub weights: bool,
    /// Whether the norms of the experts' outputs are summed as well.
    pub activations: bool,
    /// Leaves one window of so many out of the counts, so that a cut can be measured on those.
    pub hold_out: Option<u32>,
    /// Whether special tokens inside the texts are recognised.
    pub parse_special: bool,
    /// Lets the model answer each conversation with this many tokens at most, which are counted apart.
    pub generate: Option<u32>,
    /// Whether the logits are computed even where the routing can be had without.
    pub lm_head: bool,
    /// The share of the batches that is computed; all of them without.
    pub share: Option<Share>,
    /// Whether the routing in the block of multi-token prediction is watched as well, where
    /// [`Experts::mtp_that_runs`] names one. The model has to be loaded with it.
    pub mtp: bool,
}

/// What is known of a pass before the model computes anything.
pub(super) struct Prepared {
    pub config: PassConfig,
    /// The block of multi-token prediction that is watched.
    mtp: Option<u32>,
    pub windows: Windows,
    /// What was left out of the windows of each corpus.
    held_out: Vec<Option<HeldOut>>,
}

/// How the pass is run, and the block of multi-token prediction that is watched.
fn config(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &ProfileOptions,
) -> Result<(PassConfig, Option<u32>), NoPass> {
    let answer_tokens = options.generate.unwrap_or(0);
    let mtp = experts.mtp_that_runs().filter(|_| options.mtp);
    let needs = PassNeeds {
        logits: options.lm_head || answer_tokens > 0,
        states: mtp.is_some(),
        // A batch holds tokens that count for several parts.
        in_order: options.activations
            || corpora.iter().flat_map(CorpusText::chats).any(|chat| !chat.spans.is_empty()),
        room: answer_tokens,
    };
    let config = PassConfig::new(model, experts, &options.windows, needs)?;
    let mtp = mtp.filter(|_| config.context.part == ModelPart::TrunkWithStates);
    Ok((config, mtp))
}

/// The contexts that [`profile`] makes, all at the same time. `model` may be planned alone.
///
/// # Errors
/// When the architecture cannot be run so.
pub fn profile_contexts(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &ProfileOptions,
) -> Result<Vec<Wanted>, NoPass> {
    let (config, mtp) = config(model, experts, corpora, options)?;
    let of_mtp = mtp.map(|_| Wanted::all_outputs(MtpPass::context(&config.context)));
    Ok([config.wanted()].into_iter().chain(of_mtp).collect())
}

/// Finds out how the pass is run, and cuts the texts.
pub(super) fn prepare(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &ProfileOptions,
) -> Result<Prepared, ProfileError> {
    let (config, mtp) = config(model, experts, corpora, options)?;
    let cut = Cut {
        n_tokens: options.windows.ctx_size.max(1) as usize,
        limit: options.chunks.map_or(usize::MAX, |chunks| chunks as usize),
        parse_special: options.parse_special,
        answer: options.generate.is_some(),
        interrupt: options.windows.settings.interrupt,
    };
    let mut windows = Windows::cut(model.vocab(), corpora, cut)?;
    let held_out = windows.hold_out(options.hold_out);
    if let Some((corpus, _)) = corpora.iter().zip(&windows.corpora).find(|(_, windows)| windows.is_empty()) {
        return Err(ProfileError::NoTokens { corpus: corpus.name.clone() });
    }
    Ok(Prepared { config, mtp, windows, held_out })
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
    let Prepared { config, mtp, mut windows, held_out } = prepare(model, experts, corpora, options)?;
    let answer_tokens = options.generate.unwrap_or(0);
    let halves = Halves::tell_apart(&mut windows);
    let mut shapes = self::shapes(experts, |layer| layer.kind != LayerKind::Mtp);
    let mtp_shapes = self::shapes(experts, |layer| mtp == Some(layer.layer));
    let mut mtp_tally = Tally::new(mtp_shapes.clone(), options.weights, halves.n_parts());
    let mut tally = Tally::new(shapes.clone(), options.weights, halves.n_parts());
    let taken = Taken::of(&config, &windows.corpora, options.share)?;
    let of_window =
        |window: &Window| window.tokens.len() as u64 + window.answer.map_or(0, |_| u64::from(answer_tokens));
    let total = taken.windows(&windows.corpora).map(of_window).sum();
    let routing = RoutingObserver::new(&mut tally, options.weights);
    let mut pass = Pass {
        model,
        answer_tokens,
        runner: Runner::new(model, &config, total, progress)?,
        counting: Counting {
            routing: if config.headless && !options.activations { routing.stopping_early() } else { routing },
            norms: options.activations.then(|| {
                let threads = options.windows.settings.threads_batch as usize;
                NormsObserver::new(&shapes, halves.n_parts(), &experts.architecture, threads)
            }),
            mtp: mtp
                .map(|_| MtpPass::new(model, &config.context, &mut mtp_tally, options.weights))
                .transpose()?,
        },
    };
    let begin = Instant::now();
    for ((corpus, windows), runs) in corpora.iter().zip(&windows.corpora).zip(&taken.runs) {
        pass.corpus(&corpus.name, runs.iter().map(|run| &windows[run.clone()]))?;
    }
    let wall = begin.elapsed();
    let ubatches = pass.counting.routing.ubatches();
    let norms = pass.counting.norms.take().map(NormsObserver::finish).transpose();
    let mut norms = norms.map_err(LlamaError::from)?.unwrap_or_default();
    let devices = pass.runner.devices();
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
    // A corpus has no tokens when the model has nothing to answer, and may have none in one part of a run.
    let counted = |at: usize| tokens[at] > 0 || taken.part.is_some();
    for (part, _) in windows.parts.iter().zip(0..).filter(|(_, at)| !counted(*at)) {
        remarks.push(format!("{}: not a single token was generated, so there is no such corpus", part.name));
    }
    let mut layers = Vec::new();
    for (layer, mut parts) in tally.finish()?.into_iter().chain(mtp_tally.finish()?) {
        for (sums, activation) in parts.iter_mut().zip(norms.remove(&layer).into_iter().flatten()) {
            sums.activation = Some(activation);
        }
        let shape = shapes[&layer];
        let names = windows.parts.iter().map(|part| part.name.as_str());
        let exact = halves.pairs(names, counted, parts);
        let usage = LayerUsage::of_halves(layer, shape.n_expert_used, &exact)
            .expect("what was computed token by token adds up in 64 bits");
        let usage = LayerUsage { exact: taken.part.is_some().then_some(exact), ..usage };
        if usage.total.n_tokens == 0 {
            // Windows of one token have no step of multi-token prediction.
            remarks.push(format!("layer {layer}: no token went through this block of multi-token prediction, so it has no counts"));
            continue;
        }
        check_not_all_equal(layer, shape.n_expert_used, &usage.total).map_err(TallyError::from)?;
        layers.push(usage);
    }
    let has_chats = corpora.iter().any(|corpus| corpus.chats().next().is_some());
    let corpora = (0..tokens.len())
        .filter(|at| counted(*at))
        .map(|at| {
            let CorpusPart { corpus, name } = &windows.parts[at];
            Corpus { held_out: held_out[*corpus], ..corpora[*corpus].entry(name, tokens[at]) }
        })
        .collect();
    Ok(Profile {
        corpora,
        layers,
        batch_size: config.context.n_batch,
        ubatch_size: config.context.n_ubatch,
        threads: config.context.settings.threads_batch,
        kv_unified: config.context.kv_unified,
        devices,
        ubatches,
        wall,
        has_chats,
        part: taken.part,
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
    counting: Counting<'p>,
}

impl Pass<'_> {
    /// Computes the windows of a corpus. A window that is answered is alone in its context when it is.
    fn corpus<'w>(
        &mut self,
        corpus: &str,
        runs: impl Iterator<Item = &'w [Window]>,
    ) -> Result<(), ProfileError> {
        self.runner.name(corpus);
        let failed = |error| ProfileError::Window { corpus: corpus.to_owned(), error };
        for run in runs {
            self.runner.run(run, &mut self.counting).map_err(failed)?;
            if let [Window { tokens, answer: Some(part), .. }] = run {
                self.answer(corpus, tokens.len() as u32, *part)?;
            }
        }
        self.counting.check().map_err(ProfileError::from)
    }

    /// Lets the model go on after a window of `position` tokens: each time the likeliest token, until it ends or has
    /// said enough. The token that ends an answer is not computed, so it does not count.
    fn answer(&mut self, corpus: &str, position: u32, part: u32) -> Result<(), ProfileError> {
        for at in 0..self.answer_tokens {
            let failed = |error| ProfileError::Window { corpus: corpus.to_owned(), error };
            let Some(token) = self.runner.last_logits().map_err(failed)?.and_then(likeliest) else {
                return Err(ProfileError::NoNextToken { corpus: corpus.to_owned() });
            };
            if self.model.vocab().is_end_of_generation(token) {
                self.runner.expect_fewer(u64::from(self.answer_tokens - at));
                break;
            }
            self.runner.follow((position + at, token), part, &mut self.counting).map_err(failed)?;
        }
        Ok(())
    }
}
