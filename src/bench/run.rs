//! The tests, and the order in which models take them.

use super::statistics::Speed;
use crate::llama::{
    Backend, Batch, Context, ContextOptions, ContextSettings, Device, LlamaError, Model, ModelPart,
    PassOutputs, Placement, Token,
};
use crate::preflight::Wanted;
use crate::progress::{Progress, Silent};
use crate::sys;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;

/// What is measured: so many tokens of a prompt, or so many that are generated; one of the two is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Tokens of the prompt.
    pub n_prompt: u32,
    /// Tokens that are generated.
    pub n_gen: u32,
}

impl Test {
    /// A prompt of so many tokens.
    pub fn prompt(n_prompt: u32) -> Test {
        Test { n_prompt, n_gen: 0 }
    }

    /// A generation of so many tokens.
    pub fn generation(n_gen: u32) -> Test {
        Test { n_prompt: 0, n_gen }
    }

    /// `pp512`, `tg128`, as `llama-bench` calls it.
    pub fn name(self) -> String {
        if self.n_prompt > 0 { format!("pp{}", self.n_prompt) } else { format!("tg{}", self.n_gen) }
    }

    fn tokens(self) -> u32 {
        self.n_prompt + self.n_gen
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// What is measured of each model.
    pub tests: Vec<Test>,
    /// How often.
    pub repetitions: u32,
    /// Tokens handed to llama.cpp at once.
    pub batch_size: u32,
    /// Tokens computed at once.
    pub ubatch_size: u32,
    /// Layers whose experts stay in the processor's memory, which the placement of each model says, too.
    pub n_cpu_moe: u32,
    /// What contexts are made with.
    pub settings: ContextSettings,
}

impl BenchOptions {
    /// A context for the largest test, which is what has to fit into memory.
    fn context(&self) -> ContextOptions {
        ContextOptions {
            n_ctx: self.tests.iter().map(|test| test.tokens()).max().unwrap_or(1),
            n_seq: 1,
            n_batch: self.batch_size,
            n_ubatch: self.ubatch_size,
            kv_unified: true,
            outputs: PassOutputs::Logits,
            part: ModelPart::Trunk,
            settings: ContextSettings { observed: false, ..self.settings },
        }
    }
}

/// A model that is measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What it is called in the table.
    pub name: String,
    /// The file; of several shards, the first.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub file_bytes: u64,
    /// Where it goes.
    pub placement: Placement,
}

/// The times of one test of one model.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The test.
    pub test: Test,
    /// Nanoseconds of each repetition.
    pub nanoseconds: Vec<u64>,
    /// When the first began.
    pub begun: SystemTime,
}

impl Measured {
    /// Tokens a second.
    pub fn speed(&self) -> Option<Speed> {
        Speed::of(self.test.tokens().into(), &self.nanoseconds)
    }
}

/// What was measured of a model.
#[derive(Clone, Debug)]
pub struct ModelBench {
    /// The model.
    pub subject: Subject,
    /// llama.cpp's words for it, such as `qwen3moe 30B.A3B Q4_K - Medium`.
    pub description: String,
    /// Bytes of its tensors.
    pub size: u64,
    /// Its parameters.
    pub n_params: u64,
    /// Seconds that each loading took; the first may have read the disk.
    pub load_seconds: Vec<f64>,
    /// Bytes of each device's memory that model and context took, by the device's name.
    pub device_bytes: Vec<(String, u64)>,
    /// The most memory that this process had while it ran the model; `None` where the system does not tell.
    pub peak_bytes: Option<u64>,
    /// The tests, in their order.
    pub tests: Vec<Measured>,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// llama.cpp failed.
    #[error("{}: {error}", path.display())]
    Llama {
        /// The model.
        path: PathBuf,
        /// What went wrong.
        error: LlamaError,
    },
}

impl BenchError {
    /// Whether the user ended it.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, BenchError::Llama { error: LlamaError::Interrupted, .. })
    }
}

/// Measures `subjects` in turns: in each round every model is loaded, warmed up, and takes every test once. One model is
/// in memory at a time.
///
/// # Errors
/// When a model cannot be loaded or run, or the user interrupts.
pub fn bench(
    backend: &'static Backend,
    subjects: &[Subject],
    options: &BenchOptions,
    progress: &mut dyn Progress,
) -> Result<Vec<ModelBench>, BenchError> {
    let mut benches: Vec<Option<ModelBench>> = subjects.iter().map(|_| None).collect();
    let per_model: u64 = options.tests.iter().map(|test| u64::from(test.tokens())).sum();
    let total = per_model * subjects.len() as u64 * u64::from(options.repetitions);
    let mut done = 0;
    for _ in 0..options.repetitions {
        for (subject, bench) in subjects.iter().zip(&mut benches) {
            progress.name(&subject.name);
            let turn = Turn { backend, subject, options };
            let failed = |error| BenchError::Llama { path: subject.path.clone(), error };
            turn.take(bench, &mut |tokens| {
                done += tokens;
                progress.update(done, total);
            })
            .map_err(failed)?;
        }
    }
    Ok(benches.into_iter().flatten().collect())
}

/// The contexts that a model is measured in.
pub fn bench_contexts(options: &BenchOptions) -> Vec<Wanted> {
    vec![Wanted { context: options.context(), outputs: 1 }]
}

/// One model, once through all tests.
struct Turn<'a> {
    backend: &'static Backend,
    subject: &'a Subject,
    options: &'a BenchOptions,
}

impl Turn<'_> {
    fn take(&self, bench: &mut Option<ModelBench>, step: &mut dyn FnMut(u64)) -> Result<(), LlamaError> {
        let interrupt = self.options.settings.interrupt;
        sys::forget_peak_memory();
        let before = self.backend.devices();
        let begin = Instant::now();
        let model =
            Model::load(self.backend, &self.subject.path, &self.subject.placement, &mut Silent, interrupt)?;
        let load_seconds = begin.elapsed().as_secs_f64();
        let bench = bench.get_or_insert_with(|| self.empty(&model));
        bench.load_seconds.push(load_seconds);
        let vocab = model.vocab();
        let mut tokens = RandomTokens::new(vocab.len().max(1), vocab.leading_bos());
        for measured in &mut bench.tests {
            // As large as the test: in a larger one, what a token is computed in lies farther apart, and takes longer.
            let size = ContextOptions { n_ctx: measured.test.tokens(), ..self.options.context() };
            let mut context = Context::new(&model, &size)?;
            keep_most(&mut bench.device_bytes, taken(&before, &self.backend.devices()));
            // Caches and shaders are warm for what is measured, and for nothing else.
            let warm = Test { n_prompt: measured.test.n_prompt, n_gen: measured.test.n_gen.min(1) };
            self.run(&mut context, warm, &mut tokens, &mut |_| {})?;
            context.clear()?;
            if measured.nanoseconds.is_empty() {
                measured.begun = SystemTime::now();
            }
            let mut rarely = Rarely { step, since: Instant::now(), tokens: 0 };
            let begin = Instant::now();
            self.run(&mut context, measured.test, &mut tokens, &mut |tokens| rarely.take(tokens))?;
            measured.nanoseconds.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
            rarely.tell();
        }
        bench.peak_bytes = bench.peak_bytes.max(sys::peak_memory());
        Ok(())
    }

    fn empty(&self, model: &Model) -> ModelBench {
        let measured = |&test: &Test| Measured { test, nanoseconds: Vec::new(), begun: SystemTime::now() };
        ModelBench {
            subject: self.subject.clone(),
            description: model.description(),
            size: model.size(),
            n_params: model.n_params(),
            load_seconds: Vec::new(),
            device_bytes: Vec::new(),
            peak_bytes: None,
            tests: self.options.tests.iter().map(measured).collect(),
        }
    }

    /// Computes a test in an empty context, and waits for its end.
    fn run(
        &self,
        context: &mut Context<'_>,
        test: Test,
        tokens: &mut RandomTokens,
        step: &mut dyn FnMut(u64),
    ) -> Result<(), LlamaError> {
        let interrupt = self.options.settings.interrupt;
        let mut batch = Batch::last_output();
        let (mut position, mut first) = (0, true);
        let at_once = if test.n_prompt > 0 { self.options.batch_size.max(1) } else { 1 };
        while position < test.tokens() {
            interrupt.check().map_err(|_| LlamaError::Interrupted)?;
            let count = at_once.min(test.tokens() - position);
            let piece: Vec<Token> = (0..count).map(|at| tokens.next(first && at == 0)).collect();
            batch.clear();
            batch.push(0, position, &piece);
            context.compute(&mut batch)?;
            (position, first) = (position + count, false);
            step(count.into());
        }
        Ok(())
    }
}

/// Tells how far a test has come, which wakes a process that the test then shares the processor with: so not at all in
/// a short test, and seldom in a long one, in which silence would look like a device that hangs.
struct Rarely<'a> {
    step: &'a mut dyn FnMut(u64),
    since: Instant,
    tokens: u64,
}

impl Rarely<'_> {
    const PAUSE: Duration = Duration::from_millis(500);

    fn take(&mut self, tokens: u64) {
        self.tokens += tokens;
        if self.since.elapsed() >= Self::PAUSE {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.since = Instant::now();
        (self.step)(std::mem::take(&mut self.tokens));
    }
}

/// Bytes of each GPU's memory that are gone since `before`.
fn taken(before: &[Device], now: &[Device]) -> Vec<(String, u64)> {
    let pairs = before.iter().zip(now).filter(|(device, _)| device.is_gpu());
    pairs.map(|(a, b)| (a.name.clone(), a.memory_free.saturating_sub(b.memory_free))).collect()
}

/// Takes for each device the larger of two numbers of bytes.
fn keep_most(most: &mut Vec<(String, u64)>, now: Vec<(String, u64)>) {
    for (name, bytes) in now {
        match most.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = bytes.max(*known),
            None => most.push((name, bytes)),
        }
    }
}

/// Tokens that look random and are the same in every run, so that all models of one vocabulary get the same.
struct RandomTokens {
    state: u64,
    n_vocab: u64,
    bos: Option<Token>,
}

impl RandomTokens {
    fn new(n_vocab: usize, bos: Option<Token>) -> Self {
        RandomTokens { state: 1, n_vocab: n_vocab as u64, bos }
    }

    /// The next token; a text begins with BOS where the model wants that.
    fn next(&mut self, begins: bool) -> Token {
        // The generator of PCG's multiplier, whose high bits are good enough for tokens that nobody reads.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match self.bos {
            Some(bos) if begins => bos,
            _ => Token::try_from((self.state >> 33) % self.n_vocab).unwrap_or(0),
        }
    }
}
