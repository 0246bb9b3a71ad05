//! The flags that name texts and say how they are read.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::corpus::{self, ChatReader, ChatTemplate, CorpusText, TextSource};
use crate::moe::MoeModel;
use crate::score::ScoreNeeds;
use crate::usage::HeldOut;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::Path;

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
    #[arg(long, value_enum, value_name = "counts|weights|full", default_value_t = ScoreData::Weights)]
    pub score_data: ScoreData,
    /// Leave this share of the windows out of the counts, to measure a cut on
    #[arg(long, value_name = "10%", value_parser = share)]
    pub holdout: Option<f64>,
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
    /// Leave out chats that cannot be read or rendered, and count them in the usage file
    #[arg(long)]
    pub skip_bad: bool,
    /// Compute the logits too, even where the routing can be had without them
    #[arg(long, hide = true)]
    pub lm_head: bool,
}

/// A share of the windows: a percentage up to the half.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|&share| HeldOut::every(share).is_some());
    share.ok_or_else(|| "expected a percentage above 0 and up to 50%, such as 10%".to_owned())
}

/// What a profile collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScoreData {
    /// How often each expert is selected.
    Counts,
    /// Also the sum of its gate weights.
    Weights,
    /// Also how strong its outputs are.
    Full,
}

/// Remarks about texts that are shown one by one; a folder full of pictures needs no more.
const REMARKS: usize = 10;

impl TextFlags {
    /// Reads the texts, and refuses flags that speak of chats where there are none.
    pub fn read(&self, model: &MoeModel, console: Console) -> Result<Vec<CorpusText>, Failure> {
        let corpora = self.read_any(model, console)?;
        self.check_chats(&corpora)?;
        Ok(corpora)
    }

    /// Reads the texts.
    pub fn read_any(&self, model: &MoeModel, console: Console) -> Result<Vec<CorpusText>, Failure> {
        let mut remarks = 0;
        let mut say = |text: String| {
            remarks += 1;
            if remarks <= REMARKS {
                console.remark(&text);
            }
        };
        let corpora = corpus::read_corpora(&self.files, &self.chat_reader(model)?, &mut say);
        if remarks > REMARKS {
            console.remark(&format!("… and {} more like these", remarks - REMARKS));
        }
        corpora.map_err(Failure::input)
    }

    /// How chats are read: with the template that was given, or else the model's.
    fn chat_reader(&self, model: &MoeModel) -> Result<ChatReader, Failure> {
        let metadata = model.file.metadata();
        let template = match &self.chat_template {
            Some(given) => Some(given_template(given)?),
            None => metadata.get("tokenizer.chat_template").and_then(|value| value.as_str()).map(|text| {
                let origin = format!("the chat template of {}", model.file_name());
                ChatTemplate { text: text.to_owned(), origin }
            }),
        };
        let token = |key: &str| {
            let id = metadata.get(key)?.as_u64()?;
            let tokens = metadata.get("tokenizer.ggml.tokens")?.as_array()?;
            tokens.iter().nth(usize::try_from(id).ok()?)?.as_str().map(str::to_owned)
        };
        let tool_template = metadata.get("tokenizer.chat_template.tool_use").and_then(|value| value.as_str());
        let tool_template = tool_template.filter(|_| self.chat_template.is_none()).map(str::to_owned);
        Ok(ChatReader {
            template,
            tool_template,
            bos: token("tokenizer.ggml.bos_token_id").unwrap_or_default(),
            eos: token("tokenizer.ggml.eos_token_id").unwrap_or_default(),
            by_role: self.by_role,
            answer: self.generate.is_some(),
            skip_bad: self.skip_bad,
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
        self.score_data != ScoreData::Counts
    }

    /// The data that are collected.
    pub fn score_needs(&self) -> ScoreNeeds {
        match self.score_data {
            ScoreData::Counts => ScoreNeeds::Counts,
            ScoreData::Weights => ScoreNeeds::Weights,
            ScoreData::Full => ScoreNeeds::Activations,
        }
    }

    /// Whether the norms of the experts' outputs are collected.
    pub fn collects_activations(&self) -> bool {
        self.score_data == ScoreData::Full
    }

    /// One window of so many that is left out of the counts.
    pub fn hold_out(&self) -> Option<u32> {
        self.holdout.and_then(HeldOut::every)
    }

    /// Flags that speak of chats need some.
    fn check_chats(&self, corpora: &[CorpusText]) -> Result<(), Failure> {
        let flags = [
            (self.by_role, "--by-role"),
            (self.generate.is_some(), "--generate"),
            (self.chat_template.is_some(), "--chat-template"),
            (self.skip_bad, "--skip-bad"),
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
