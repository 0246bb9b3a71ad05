//! The flags that name the texts of a measurement.

use super::texts::{ScoreData, TextFlags};
use crate::console::Console;
use crate::console::failure::Failure;
use crate::corpus::{CorpusText, TextSource};
use crate::moe::MoeModel;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::Path;

/// What to measure on.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Texts")]
pub struct EvalTextFlags {
    /// Text to measure on: a file or a folder; .jsonl files are chats; NAME=PATH names the corpus. Repeatable
    #[arg(short = 'f', long = "file", value_name = "[NAME=]PATH", required = true, value_parser = OsStringValueParser::new().try_map(|text| TextSource::parse(&text)))]
    pub files: Vec<TextSource>,
    /// Text of other work, which is shown apart. Repeatable
    #[arg(long, value_name = "[NAME=]PATH", value_parser = OsStringValueParser::new().try_map(|text| TextSource::parse(&text)))]
    pub other: Vec<TextSource>,
    /// Use at most N windows of each corpus
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Recognise special tokens, such as <|im_start|>, inside plain texts too (in chats they always are)
    #[arg(long)]
    pub parse_special: bool,
    /// Render chats with this template, a file or the text itself, instead of the model's own
    #[arg(long, value_name = "FILE|JINJA")]
    pub chat_template: Option<String>,
}

impl EvalTextFlags {
    /// Reads the texts, those of other work behind the others.
    pub fn read(&self, model: &MoeModel, console: Console) -> Result<Vec<CorpusText>, Failure> {
        if let Some(both) =
            self.other.iter().find(|other| self.files.iter().any(|file| file.name == other.name))
        {
            let name = &both.name;
            return Err(Failure::arguments(format!(
                "the corpus {name:?} is given both with -f and with --other: name one of them apart, NAME=PATH"
            )));
        }
        self.as_texts().read(model, console)
    }

    /// Whether a corpus stands for other work.
    pub fn is_other(&self, name: &str) -> bool {
        self.other.iter().any(|other| other.name == name)
    }

    /// The files that were read for `corpora`.
    pub fn inputs<'a>(&'a self, corpora: &'a [CorpusText]) -> impl Iterator<Item = &'a Path> {
        let texts = corpora.iter().flat_map(|corpus| corpus.texts.iter().map(|text| text.path.as_path()));
        texts.chain(self.chat_template.as_deref().map(Path::new))
    }

    fn as_texts(&self) -> TextFlags {
        TextFlags {
            files: self.files.iter().chain(&self.other).cloned().collect(),
            chunks: self.chunks,
            score_data: ScoreData::Counts,
            holdout: None,
            parse_special: self.parse_special,
            by_role: false,
            generate: None,
            chat_template: self.chat_template.clone(),
            lm_head: false,
            skip_bad: false,
        }
    }
}
