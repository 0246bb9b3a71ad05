//! `moeslice profile --dry-run` and `--show-text`: what would run, and what the model would read.

use crate::console::failure::Failure;
use crate::console::{Console, print, print_json, print_styled};
use crate::corpus::{Content, CorpusText};
use crate::flags::llama::LlamaFlags;
use crate::llama::{Device, Model, Placement};
use crate::moe::MoeModel;
use crate::profile::{Outline, ProfileOptions, outline};
use crate::progress::Silent;
use crate::report::fitting;
use crate::units::ByteCount;
use crate::windows::KvUnified;
use clap::Args;
use serde::Serialize;

/// Looking instead of running.
#[derive(Args, Clone, Copy, Debug)]
pub struct LookFlags {
    /// Say what would run (files, tokens, windows, batches, devices, memory), and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the chats as the model would read them, special tokens and all, and run nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub show_text: bool,
    /// Machine-readable output of --dry-run
    #[arg(long, requires = "dry_run")]
    pub json: bool,
}

/// Prints the rendered conversations.
pub fn show_text(corpora: &[CorpusText]) -> Result<(), Failure> {
    if corpora.iter().all(|corpus| corpus.chats().next().is_none()) {
        let what = "--show-text is for chats, and no text is one: their names end in .jsonl";
        return Err(Failure::input(anyhow::anyhow!(what)));
    }
    for (corpus, text) in
        corpora.iter().flat_map(|corpus| corpus.texts.iter().map(move |text| (corpus, text)))
    {
        let Content::Chats(chats) = &text.content else { continue };
        for (at, chat) in chats.iter().enumerate() {
            let (name, file) = (&corpus.name, text.path.display());
            print(&format!("==> {name}: {file}, conversation {} <==\n{}\n", at + 1, chat.text))?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Row {
    corpus: String,
    files: u64,
    tokens: u64,
    windows: u64,
}

#[derive(Serialize)]
struct DeviceRow {
    name: String,
    memory_free: u64,
    memory_total: u64,
}

/// Prints what a profile would run. Of the model, the vocabulary alone is loaded.
pub fn dry_run(
    model: &MoeModel,
    corpora: &[CorpusText],
    flags: &LlamaFlags,
    options: &ProfileOptions,
    look: LookFlags,
    console: Console,
) -> Result<(), Failure> {
    let backend = flags.start()?;
    let placement = flags.placement(backend, console)?;
    let devices = flags.devices(backend, &placement);
    let ctx_size = options.windows.ctx_size;
    let vocabulary = Placement {
        devices: Some(Vec::new()),
        vocab_only: true,
        kv_overrides: placement.kv_overrides.clone(),
        ..Placement::default()
    };
    let first = model.files().next().unwrap_or(model.path());
    let interrupt = options.windows.settings.interrupt;
    let loaded = Model::load(backend, first, &vocabulary, &mut Silent, interrupt).map_err(Failure::input)?;
    let mut options = options.clone();
    if options.windows.kv_unified == KvUnified::Auto && devices.iter().any(Device::is_gpu) {
        // What auto would find with the model on these devices.
        options.windows.kv_unified = KvUnified::On;
    }
    let found = outline(&loaded, &model.experts, corpora, &options)?;
    let devices: Vec<DeviceRow> = devices
        .into_iter()
        .map(|device| DeviceRow {
            name: device.name,
            memory_free: device.memory_free,
            memory_total: device.memory_total,
        })
        .collect();
    let Outline { corpora, batches, batch_size, ubatch_size, answers } = found;
    let rows: Vec<Row> = corpora
        .into_iter()
        .map(|corpus| Row {
            corpus: corpus.name,
            files: corpus.files,
            tokens: corpus.tokens,
            windows: corpus.windows,
        })
        .collect();
    let model_bytes = model.file.total_bytes();
    if look.json {
        return Ok(print_json(&serde_json::json!({
            "rows": rows, "ctx_size": ctx_size, "batches": batches, "batch_size": batch_size,
            "ubatch_size": ubatch_size, "answers": answers, "model_bytes": model_bytes, "devices": devices,
        }))?);
    }
    let lines: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| vec![row.corpus, row.files.to_string(), row.tokens.to_string(), row.windows.to_string()])
        .collect();
    let mut text = fitting(&console.style(), &["corpus", "files", "tokens", "windows"], &lines, (1, 1));
    text.push_str(&format!(
        "\nwindows of {ctx_size} tokens, in {batches} batches of up to {batch_size} tokens, {ubatch_size} computed at once\n"
    ));
    if let Some(most) = options.generate {
        text.push_str(&format!("{answers} answers of up to {most} tokens\n"));
    }
    let devices: Vec<String> = devices
        .into_iter()
        .map(|device| {
            let (free, total) = (ByteCount(device.memory_free), ByteCount(device.memory_total));
            format!("{} ({free} free of {total})", device.name)
        })
        .collect();
    text.push_str(&format!("the model has {}, to run on {}\n", ByteCount(model_bytes), devices.join(", ")));
    Ok(print_styled(&text)?)
}
