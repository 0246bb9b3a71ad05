//! Records the routing of texts, and of what the model writes after them.

use super::sampler::{Generation, Sampler};
use super::trace_recorder::TraceRecorder;
use crate::corpus::{Content, CorpusText, Text};
use crate::llama::{LlamaError, Model};
use crate::moe::{Experts, LayerKind};
use crate::preflight::Wanted;
use crate::progress::Progress;
use crate::trace::{
    Batch, Phase, Row, TraceError, TraceLayer, TraceMeta, TraceRun, TraceWriter, TracedCorpus, TracedModel,
};
use crate::windows::{
    Cut, NoPass, PassConfig, PassError, PassNeeds, Runner, TokenizeError, Window, WindowOptions, Windows,
};
use std::path::Path;
use thiserror::Error;

/// How to record.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Sizes and settings of the pass.
    pub windows: WindowOptions,
    /// Windows of each corpus, at most.
    pub chunks: Option<u32>,
    /// Whether special tokens inside plain texts are recognised.
    pub parse_special: bool,
    /// Candidates of each token and layer; the selected ones and as many again without it.
    pub candidates: Option<u32>,
    /// What the model writes behind each text.
    pub generate: Option<Generation>,
}

/// Why a trace was not recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The model cannot be run for its routing.
    #[error(transparent)]
    NoPass(#[from] NoPass),
    /// A text did not become tokens.
    #[error(transparent)]
    Text(#[from] TokenizeError),
    /// No token in all the texts.
    #[error("the texts have no tokens: there is nothing to record")]
    NoTokens,
    /// llama.cpp or the observer failed.
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
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl RecordError {
    /// Whether the user ended the pass.
    pub fn is_interrupt(&self) -> bool {
        matches!(
            self,
            RecordError::Llama(LlamaError::Interrupted)
                | RecordError::Text(TokenizeError::Interrupted)
                | RecordError::Window { error: PassError { error: LlamaError::Interrupted, .. }, .. }
        )
    }
}

/// A trace that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Tokens in it, written ones among them.
    pub tokens: u64,
    /// Tokens that the model wrote.
    pub generated: u64,
    /// Texts and conversations.
    pub sessions: u32,
    /// Candidates of each token and layer.
    pub candidates: u32,
}

/// A text or conversation, cut into windows.
struct Session {
    corpus: usize,
    windows: Vec<Window>,
}

/// Where a trace goes, and what it says of its making.
#[derive(Clone, Debug)]
pub struct TraceTarget<'a> {
    /// The file.
    pub path: &'a Path,
    /// Whether one of that name may be replaced.
    pub replace: bool,
    /// The model.
    pub model: TracedModel,
    /// Version of llama.cpp.
    pub llama_cpp: String,
    /// What the model runs on.
    pub devices: Vec<String>,
}

/// How the texts are run.
fn config(model: &Model, experts: &Experts, options: &TraceOptions) -> Result<PassConfig, NoPass> {
    let room = options.generate.map_or(0, |generation| generation.tokens);
    let needs = PassNeeds { logits: room > 0, in_order: true, room, ..PassNeeds::default() };
    PassConfig::new(model, experts, &options.windows, needs)
}

/// The contexts that [`record`] makes. `model` may be planned alone.
///
/// # Errors
/// When the architecture cannot be run so.
pub fn trace_contexts(
    model: &Model,
    experts: &Experts,
    options: &TraceOptions,
) -> Result<Vec<Wanted>, NoPass> {
    Ok(vec![config(model, experts, options)?.wanted()])
}

/// Runs the texts through `model`, one session each, and writes the routing of every token to a trace. Memory is that of
/// the texts and of one window, however long the trace.
///
/// A text that is longer than a window is cut into several, each from an empty context, in one session. What the model
/// writes follows the last window of its session.
///
/// # Errors
/// See [`RecordError`]. What was recorded until then stays as the `.part` of the trace.
pub fn record(
    model: &Model,
    experts: &Experts,
    corpora: &[CorpusText],
    options: &TraceOptions,
    target: &TraceTarget<'_>,
    progress: &mut dyn Progress,
) -> Result<Recorded, RecordError> {
    let room = options.generate.map_or(0, |generation| generation.tokens);
    let config = config(model, experts, options)?;
    let sessions = sessions(model, corpora, options)?;
    let text_tokens: u64 =
        sessions.iter().flat_map(|session| &session.windows).map(|window| window.tokens.len() as u64).sum();
    if text_tokens == 0 {
        return Err(RecordError::NoTokens);
    }
    let total = text_tokens + sessions.len() as u64 * u64::from(room);
    let layers: Vec<_> = experts.layers.iter().filter(|layer| layer.kind != LayerKind::Mtp).collect();
    let used = layers.iter().map(|layer| layer.n_expert_used).max().unwrap_or(0);
    let candidates = options.candidates.unwrap_or(used.saturating_mul(2));
    let mut recorder = TraceRecorder::new(layers.iter().copied(), experts.groups, candidates);
    let mut meta = TraceMeta::new(
        layers.iter().map(|layer| TraceLayer::of(layer)).collect(),
        recorder.candidates(),
        recorder.router_values(),
    );
    meta.model = Some(target.model.clone());
    meta.gating = experts.gate.map(|gate| gate.name().to_owned());
    meta.run = Some(TraceRun {
        moeslice: env!("CARGO_PKG_VERSION").to_owned(),
        llama_cpp: target.llama_cpp.clone(),
        devices: target.devices.clone(),
        ctx_size: options.windows.ctx_size,
        ubatch_size: config.context.n_ubatch,
        generate: options.generate.map(|generation| generation.tokens),
        sampling: options.generate.map(|generation| match generation.temperature {
            0.0 => "greedy".to_owned(),
            temperature => format!("temperature {temperature}, seed {}", generation.seed),
        }),
    });
    meta.corpora = traced_corpora(corpora, &sessions);
    let mut pass = Recording {
        runner: Runner::new(model, &config, total, progress)?,
        recorder: &mut recorder,
        sampler: options.generate.map(Sampler::new),
        model,
        meta,
        target,
        writer: None,
        batch: Batch::default(),
        generated: 0,
    };
    for (number, session) in (0..).zip(&sessions) {
        pass.session(number, session, &corpora[session.corpus].name)?;
    }
    let (writer, generated) = (pass.writer.take(), pass.generated);
    let Some(writer) = writer else { return Err(RecordError::NoTokens) };
    let tokens = writer.tokens();
    let candidates = writer.meta().candidates;
    writer.finish()?;
    Ok(Recorded { tokens, generated, sessions: sessions.len() as u32, candidates })
}

/// Each text and each conversation is a session of its own.
fn sessions(
    model: &Model,
    corpora: &[CorpusText],
    options: &TraceOptions,
) -> Result<Vec<Session>, TokenizeError> {
    let mut sessions = Vec::new();
    for (corpus, texts) in corpora.iter().enumerate() {
        let mut limit = options.chunks.map_or(usize::MAX, |chunks| chunks as usize);
        let mut add = |text: Text| -> Result<(), TokenizeError> {
            let one = CorpusText { name: texts.name.clone(), texts: vec![text] };
            let cut = Cut {
                n_tokens: options.windows.ctx_size.max(1) as usize,
                limit,
                parse_special: options.parse_special,
                answer: false,
                interrupt: options.windows.settings.interrupt,
            };
            let windows = Windows::cut(model.vocab(), std::slice::from_ref(&one), cut)?.corpora.remove(0);
            limit -= windows.len();
            if !windows.is_empty() {
                sessions.push(Session { corpus, windows });
            }
            Ok(())
        };
        for text in &texts.texts {
            match &text.content {
                Content::Plain(_) => add(text.clone())?,
                Content::Chats(chats) => chats.iter().try_for_each(|chat| {
                    let (path, file) = (text.path.clone(), text.file.clone());
                    add(Text { path, file, content: Content::Chats(vec![chat.clone()]) })
                })?,
            }
        }
    }
    Ok(sessions)
}

fn traced_corpora(corpora: &[CorpusText], sessions: &[Session]) -> Vec<TracedCorpus> {
    let first = |corpus: usize| {
        sessions.iter().position(|session| session.corpus >= corpus).unwrap_or(sessions.len())
    };
    let traced = |(at, corpus): (usize, &CorpusText)| TracedCorpus {
        name: corpus.name.clone(),
        first_session: first(at) as u32,
        files: corpus.texts.iter().map(|text| text.file.clone()).collect(),
    };
    corpora.iter().enumerate().map(traced).collect()
}

/// A pass that is running.
struct Recording<'p> {
    runner: Runner<'p, 'p>,
    recorder: &'p mut TraceRecorder,
    sampler: Option<Sampler>,
    model: &'p Model,
    meta: TraceMeta,
    target: &'p TraceTarget<'p>,
    /// Made with the first tokens, which tell what the router values are.
    writer: Option<TraceWriter>,
    batch: Batch,
    generated: u64,
}

impl Recording<'_> {
    fn session(&mut self, number: u32, session: &Session, corpus: &str) -> Result<(), RecordError> {
        self.runner.name(corpus);
        let failed = |error| RecordError::Window { corpus: corpus.to_owned(), error };
        let row =
            |turn, phase, position, token| Row { session: number, turn, phase, ubatch: 0, position, token };
        let mut turn = 0;
        let mut part = None;
        for window in &session.windows {
            let mut rows = Vec::with_capacity(window.tokens.len());
            for ((position, token), now) in (0..).zip(&window.tokens).zip(&window.parts) {
                // A part is a role, so that a new part is a new turn.
                turn += u32::from(part.replace(*now).is_some_and(|before| before != *now));
                rows.push(row(turn, Phase::Prefill, position, *token));
            }
            self.recorder.expect(rows);
            self.runner.run(std::slice::from_ref(window), self.recorder).map_err(failed)?;
            self.write(corpus)?;
        }
        let (Some(window), Some(mut sampler)) = (session.windows.last(), self.sampler.take()) else {
            return Ok(());
        };
        let part = window.parts.last().copied().unwrap_or(0);
        for (at, position) in (0..sampler.generation.tokens).zip(window.tokens.len() as u32..) {
            let token = self.runner.last_logits().map_err(failed)?.and_then(|logits| sampler.next(logits));
            let Some(token) = token else {
                return Err(RecordError::NoNextToken { corpus: corpus.to_owned() });
            };
            if self.model.vocab().is_end_of_generation(token) {
                self.runner.expect_fewer(u64::from(sampler.generation.tokens - at));
                break;
            }
            self.recorder.expect([row(turn + 1, Phase::Decode, position, token)]);
            self.runner.follow((position, token), part, self.recorder).map_err(failed)?;
            self.write(corpus)?;
            self.generated += 1;
        }
        self.sampler = Some(sampler);
        Ok(())
    }

    /// Moves what was recorded to the trace.
    fn write(&mut self, corpus: &str) -> Result<(), RecordError> {
        self.recorder.take(&mut self.batch).map_err(|error| RecordError::Window {
            corpus: corpus.to_owned(),
            error: self.runner.failed(error.into()),
        })?;
        let values = self.recorder.router_values();
        if values == crate::trace::RouterValues::None {
            for list in
                [&mut self.batch.values, &mut self.batch.z_min, &mut self.batch.z_mean, &mut self.batch.z_std]
            {
                list.clear();
            }
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let meta = TraceMeta { router_values: values, ..self.meta.clone() };
                self.writer.insert(TraceWriter::create(self.target.path, self.target.replace, meta)?)
            }
        };
        Ok(writer.append(&mut self.batch)?)
    }
}
