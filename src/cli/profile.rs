//! `moeslice profile`: usage of the experts from a model and corpora.

use super::INTERRUPT;
use super::failure::Failure;
use super::llama_flags::LlamaFlags;
use super::mtp::{Mtp, MtpFlag};
use super::output::{self, remark};
use super::outputs::{Outputs, write_small};
use super::source::Source;
use crate::llama::{Backend, LlamaError};
use crate::moe::LayerKind;
use crate::plan::PlanError;
use crate::profile::{self, ChatReader, ChatTemplate, CorpusText, ProfileOptions, TextSource, Usage};
use crate::sys;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// What to profile with.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Texts")]
pub struct TextFlags {
    /// Text to profile with: a file or a folder; .jsonl files are chats; NAME=PATH names the corpus. Repeatable
    #[arg(short = 'f', long = "file", value_name = "[NAME=]PATH", required = true, value_parser = OsStringValueParser::new().try_map(|text| TextSource::parse(&text)))]
    pub files: Vec<TextSource>,
    /// Use at most N windows of each corpus
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// What to collect for each expert
    #[arg(long, value_enum, default_value_t = ScoreData::Weights)]
    pub score_data: ScoreData,
    /// Recognise special tokens, such as <|im_start|>, inside plain texts too (in chats they always are)
    #[arg(long)]
    pub parse_special: bool,
    /// Count the roles of chats (.jsonl) apart, as NAME/user, NAME/assistant and so on
    #[arg(long)]
    pub by_role: bool,
    /// Let the model answer each chat with at most N tokens, and count them apart, as NAME/generated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub generate: Option<u32>,
    /// Render chats with this template, a file or the text itself, instead of the model's own
    #[arg(long, value_name = "FILE|JINJA")]
    pub chat_template: Option<String>,
    /// Compute the logits too, even where the routing can be had without them
    #[arg(long, hide = true)]
    pub lm_head: bool,
}

/// What a profile collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScoreData {
    /// How often each expert is selected.
    Counts,
    /// Also the sum of its gate weights.
    Weights,
}

/// Arguments of `profile`.
#[derive(Args, Clone, Debug)]
pub struct ProfileArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// The usage file to write; "-" for stdout
    #[arg(short, long, value_name = "U.json")]
    pub output: PathBuf,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub texts: TextFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `profile`.
pub fn profile(args: &ProfileArgs, quiet: bool) -> Result<(), Failure> {
    let to_stdout = args.output == Path::new("-");
    args.mtp.refuse_plan("a profile counts")?;
    let source = Source::open(&args.model)?;
    check_nextn(&source, args.mtp, quiet)?;
    let corpora = args.texts.read(&source, quiet)?;
    if !to_stdout {
        let mut outputs = Outputs::default();
        outputs.add_small(&args.output, args.force)?;
        outputs.check_inputs(source.files().chain(args.texts.inputs(&corpora)))?;
    }
    let usage = run_profile(&source, &corpora, &args.texts, &args.llama, args.mtp, quiet)?;
    if to_stdout {
        return output::print(&usage.to_json());
    }
    write_small(&args.output, usage.to_json().as_bytes(), args.force)?;
    remark(quiet, &format!("wrote {}", args.output.display()));
    Ok(())
}

/// A block of multi-token prediction that has experts and will get no counts is an error when a profile of it was asked
/// for, and else worth a word.
fn check_nextn(source: &Source, flag: MtpFlag, quiet: bool) -> Result<(), Failure> {
    let experts = &source.experts;
    if let Some(text) = flag.remark(experts) {
        remark(quiet, text);
    }
    let uncounted = experts
        .layers
        .iter()
        .find(|layer| layer.kind == LayerKind::NextN && experts.nextn_that_runs() != Some(layer.layer));
    let Some(layer) = uncounted else { return Ok(()) };
    let error = PlanError::NextN { layer: layer.layer, runs: false };
    match flag.mtp {
        Some(Mtp::Profile) => {
            Err(Failure::input(anyhow::anyhow!("{}: {error}", source.model.path().display())))
        }
        Some(Mtp::Drop | Mtp::Plan) => Ok(()),
        None => {
            remark(quiet, &error.to_string());
            Ok(())
        }
    }
}

/// Loads the model and profiles it with `corpora`.
pub fn run_profile(
    source: &Source,
    corpora: &[CorpusText],
    texts: &TextFlags,
    flags: &LlamaFlags,
    mtp: MtpFlag,
    quiet: bool,
) -> Result<Usage, Failure> {
    sys::catch_interrupts(&INTERRUPT);
    let backend = Backend::start().map_err(Failure::running)?;
    let (mut placement, devices) = flags.placement(backend, quiet)?;
    placement.nextn = mtp.runs_block() && source.experts.nextn_that_runs().is_some();
    let model = flags.load(backend, source.first_file(), &placement, quiet)?;
    if flags.ctx_size > model.n_ctx_train() {
        let (asked, trained) = (flags.ctx_size, model.n_ctx_train());
        remark(
            quiet,
            &format!(
                "windows of {asked} tokens (-c) are longer than the {trained} that the model was trained on"
            ),
        );
    }
    let options = ProfileOptions {
        ctx_size: flags.ctx_size,
        batch_size: flags.batch_size,
        ubatch_size: flags.ubatch_size,
        threads: flags.threads(),
        flash_attention: flags.flash_attention(),
        chunks: texts.chunks,
        weights: texts.collects_weights(),
        parse_special: texts.parse_special,
        generate: texts.generate,
        lm_head: texts.lm_head,
        nextn: mtp.runs_block(),
        interrupt: Some(&INTERRUPT),
    };
    let bar = output::progress(quiet, 0, output::Unit::Tokens);
    let profiled = profile::profile(&model, &source.experts, corpora, &options, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(progress.corpus.to_owned());
    });
    bar.finish_and_clear();
    let profiled = profiled.map_err(|error| match error {
        error if error.is_interrupt() => Failure::Interrupted,
        error @ (profile::ProfileError::NoTokens { .. } | profile::ProfileError::NoPass { .. }) => {
            Failure::input(error)
        }
        error => Failure::running(error),
    })?;
    say_what_was_profiled(&profiled, &devices, quiet);
    Ok(profiled.into_usage(source.model.path(), &source.identity, backend.version(), devices, flags.ctx_size))
}

/// Remarks about texts that are shown one by one; a folder full of pictures needs no more.
const REMARKS: usize = 10;

impl TextFlags {
    /// Reads the texts.
    pub fn read(&self, source: &Source, quiet: bool) -> Result<Vec<CorpusText>, Failure> {
        let mut remarks = 0;
        let mut say = |text: String| {
            remarks += 1;
            remark(quiet || remarks > REMARKS, &text);
        };
        let corpora = profile::read_corpora(&self.files, &self.chat_reader(source)?, &mut say);
        if remarks > REMARKS {
            remark(quiet, &format!("… and {} more like these", remarks - REMARKS));
        }
        let corpora = corpora.map_err(Failure::input)?;
        self.check_chats(&corpora)?;
        Ok(corpora)
    }

    /// How chats are read: with the template that was given, or else the model's.
    fn chat_reader(&self, source: &Source) -> Result<ChatReader, Failure> {
        let metadata = source.model.metadata();
        let template = match &self.chat_template {
            Some(given) => Some(given_template(given)?),
            None => metadata.get("tokenizer.chat_template").and_then(|value| value.as_str()).map(|text| {
                let origin = format!("the chat template of {}", source.file_name());
                ChatTemplate { text: text.to_owned(), origin }
            }),
        };
        let token = |key: &str| {
            let id = metadata.get(key)?.as_u64()?;
            let tokens = metadata.get("tokenizer.ggml.tokens")?.as_array()?;
            tokens.iter().nth(usize::try_from(id).ok()?)?.as_str().map(str::to_owned)
        };
        Ok(ChatReader {
            template,
            bos: token("tokenizer.ggml.bos_token_id").unwrap_or_default(),
            eos: token("tokenizer.ggml.eos_token_id").unwrap_or_default(),
            by_role: self.by_role,
            answer: self.generate.is_some(),
        })
    }

    /// The files that were read for `corpora`, the template of chats among them.
    pub fn inputs<'a>(&'a self, corpora: &'a [CorpusText]) -> impl Iterator<Item = &'a Path> {
        let texts = corpora.iter().flat_map(|corpus| corpus.texts.iter().map(|text| text.path.as_path()));
        // A template that was given as text leads to no file, and is no input then.
        texts.chain(self.chat_template.as_deref().map(Path::new))
    }

    /// Whether a corpus can become several, whose names are known only in the end.
    pub fn splits_corpora(&self) -> bool {
        self.by_role || self.generate.is_some()
    }

    /// Whether gate weights are collected.
    pub fn collects_weights(&self) -> bool {
        self.score_data == ScoreData::Weights
    }

    /// Flags that speak of chats need some.
    fn check_chats(&self, corpora: &[CorpusText]) -> Result<(), Failure> {
        let flags = [
            (self.by_role, "--by-role"),
            (self.generate.is_some(), "--generate"),
            (self.chat_template.is_some(), "--chat-template"),
        ];
        match flags.iter().find(|(given, _)| *given) {
            Some((_, flag)) if corpora.iter().all(|corpus| corpus.chats().next().is_none()) => {
                let what =
                    anyhow::anyhow!("{flag} is for chats, and no text is one: their names end in .jsonl");
                Err(Failure::input(what))
            }
            _ => Ok(()),
        }
    }
}

/// A template from the command line: the text itself when there is a tag of Jinja in it, else a file.
fn given_template(given: &str) -> Result<ChatTemplate, Failure> {
    if given.contains("{{") || given.contains("{%") {
        return Ok(ChatTemplate { text: given.to_owned(), origin: "the template of --chat-template".into() });
    }
    let text = std::fs::read_to_string(given).map_err(|error| {
        Failure::input(anyhow::anyhow!(
            "{given}: cannot read the chat template: {error}; --chat-template takes a file, or the Jinja text itself"
        ))
    })?;
    Ok(ChatTemplate { text, origin: given.to_owned() })
}

fn say_what_was_profiled(profiled: &profile::Profile, devices: &[String], quiet: bool) {
    profiled.remarks.iter().for_each(|text| remark(quiet, text));
    let tokens: u64 = profiled.corpora.iter().map(|corpus| corpus.tokens).sum();
    let seconds = profiled.wall.as_secs_f64();
    let names: Vec<String> =
        profiled.corpora.iter().map(|corpus| format!("{} ({} tokens)", corpus.name, corpus.tokens)).collect();
    remark(
        quiet,
        &format!(
            "profiled {} on {}: {tokens} tokens in {seconds:.1} s, {:.0} tokens/s",
            names.join(", "),
            devices.join(", "),
            tokens as f64 / seconds.max(1e-9)
        ),
    );
}

impl From<LlamaError> for Failure {
    fn from(error: LlamaError) -> Self {
        match error {
            LlamaError::Interrupted => Failure::Interrupted,
            error => Failure::running(error),
        }
    }
}
