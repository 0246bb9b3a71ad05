//! `moeslice trace`: the routing of texts, recorded token by token.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, output_failure};
use crate::corpus::TextSource;
use crate::flags::llama::LlamaFlags;
use crate::flags::texts::{ScoreData, TextFlags};
use crate::llama::Model;
use crate::moe::{LayerKind, MoeModel};
use crate::profile::{self, Generation, RecordError, Recorded, TraceOptions, TraceTarget};
use crate::progress::{Unit, stage};
use crate::supervise;
use crate::sys::{FileError, PartFile, catch_interrupts};
use crate::trace::{TraceError, TracedModel};
use crate::units::ByteCount;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;

/// Arguments of `trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// Text to run: a file or a folder; each text is a session. .jsonl files are chats, each line a session. NAME=PATH names the corpus. Repeatable
    #[arg(short = 'f', long = "file", value_name = "[NAME=]PATH", required = true, value_parser = OsStringValueParser::new().try_map(|text| TextSource::parse(&text)))]
    pub files: Vec<TextSource>,
    /// The trace to write, an Arrow IPC stream; OUT.part until it is whole
    #[arg(short, long, value_name = "T.arrow")]
    pub output: PathBuf,
    /// Replace an existing output, and what a killed run left of one
    #[arg(long)]
    pub force: bool,
    /// Candidates of each token and layer to record; default: the selected ones and as many again
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub candidates: Option<u32>,
    /// Use at most N windows of each corpus
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Recognise special tokens, such as <|im_start|>, inside plain texts too (in chats they always are)
    #[arg(long)]
    pub parse_special: bool,
    /// Let the model write at most N tokens behind each text, or answer each chat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub generate: Option<u32>,
    /// Temperature of what the model writes; 0 takes the likeliest token each time
    #[arg(long, value_name = "T", default_value_t = 0.0, requires = "generate", value_parser = temperature)]
    pub temp: f32,
    /// Where the random numbers of a temperature begin
    #[arg(long, value_name = "N", default_value_t = 0, requires = "generate")]
    pub seed: u64,
    /// Render chats with this template, a file or the text itself, instead of the model's own
    #[arg(long, value_name = "FILE|JINJA")]
    pub chat_template: Option<String>,
    /// Leave out chats that cannot be read or rendered
    #[arg(long)]
    pub skip_bad: bool,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

fn temperature(text: &str) -> Result<f32, String> {
    let temperature = text.parse().ok().filter(|temperature: &f32| (0.0..=100.0).contains(temperature));
    temperature.ok_or_else(|| "expected a temperature from 0 to 100".to_owned())
}

/// Runs `trace`.
pub fn trace(args: &TraceArgs, console: Console) -> Result<(), Failure> {
    let model = MoeModel::open(&args.model).map_err(Failure::input)?;
    if model.experts.layers.iter().any(|layer| layer.kind == LayerKind::Mtp) {
        console.remark(
            "the block of multi-token prediction does not run in an ordinary context: it is not in the trace",
        );
    }
    // Turns are told from the roles.
    let texts = TextFlags {
        holdout: None,
        files: args.files.clone(),
        chunks: args.chunks,
        score_data: ScoreData::Counts,
        parse_special: args.parse_special,
        by_role: true,
        generate: args.generate,
        chat_template: args.chat_template.clone(),
        skip_bad: args.skip_bad,
        lm_head: false,
    };
    let corpora = texts.read_any(&model, console)?;
    let mut outputs = OutputFiles::default();
    outputs.add_small(&args.output, args.force)?;
    let part = PartFile::part_of(&args.output);
    if part.exists() && !args.force {
        return Err(output_failure(FileError::Exists { path: part }));
    }
    outputs.check_inputs(model.files().chain(texts.inputs(&corpora)))?;
    let interrupt = catch_interrupts();
    let options = TraceOptions {
        windows: args.llama.windows(&model.file, interrupt),
        chunks: args.chunks,
        parse_special: args.parse_special,
        candidates: args.candidates,
        generate: args.generate.map(|tokens| Generation { tokens, temperature: args.temp, seed: args.seed }),
    };
    let mut contexts = |planned: &Model| {
        let contexts = profile::trace_contexts(planned, &model.experts, &options);
        Ok(vec![contexts.map_err(Failure::input)?])
    };
    let loaded = args.llama.load_model(&model, false, (console, interrupt), &mut contexts)?;
    let target = TraceTarget {
        path: &args.output,
        replace: args.force,
        model: TracedModel::new(model.path(), &model.identity),
        llama_cpp: loaded.backend.version(),
        devices: loaded.devices,
    };
    supervise::tell_kept(&part);
    let recorded = stage(&mut *console.progress(), "recording", Unit::Tokens, |progress| {
        profile::record(&loaded.model, &model.experts, &corpora, &options, &target, progress)
    });
    match recorded {
        Ok(recorded) => {
            say_what_was_recorded(args, &recorded, console);
            Ok(())
        }
        Err(error) => {
            if part.exists() {
                console.remark(&format!(
                    "{} has what was recorded until then, and `replay` takes it",
                    part.display()
                ));
            }
            Err(record_failure(error))
        }
    }
}

fn record_failure(error: RecordError) -> Failure {
    match error {
        error if error.is_interrupt() => Failure::Interrupted,
        RecordError::Trace(TraceError::Write(error)) => output_failure(error),
        error @ (RecordError::NoTokens | RecordError::Text(_) | RecordError::NoPass(_)) => {
            Failure::input(error)
        }
        error => Failure::running(error),
    }
}

fn say_what_was_recorded(args: &TraceArgs, recorded: &Recorded, console: Console) {
    let bytes = std::fs::metadata(&args.output).map_or(0, |found| found.len());
    let Recorded { tokens, generated, sessions, candidates } = recorded;
    let output = args.output.display();
    let bytes = ByteCount(bytes);
    console.remark(&format!(
        "wrote {output}: {tokens} tokens ({generated} of them generated) in {sessions} {}, {candidates} candidates a layer, {bytes}",
        if *sessions == 1 { "session" } else { "sessions" }
    ));
}
