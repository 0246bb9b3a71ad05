//! `moeslice profile --dry-run` and `--show-text`: what would run, and what the model would read.

use crate::console::failure::{Failure, with_hint};
use crate::console::{Console, print, print_json, print_styled};
use crate::corpus::{Content, CorpusText};
use crate::flags::llama::LlamaFlags;
use crate::flags::loading::Placed;
use crate::flags::preflight::free_on;
use crate::llama::{LlamaError, Model};
use crate::moe::MoeModel;
use crate::preflight::DoesNotFit;
use crate::profile::{Outline, ProfileOptions, outline, profile_contexts};
use crate::report::{MemoryRow, fitting};
use crate::sys::available_memory;
use crate::units::ByteCount;
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

/// Prints what a profile would run. The model is planned alone.
pub fn dry_run(
    model: &MoeModel,
    corpora: &[CorpusText],
    flags: &LlamaFlags,
    options: &ProfileOptions,
    look: LookFlags,
    console: Console,
) -> Result<(), Failure> {
    let ctx_size = options.windows.ctx_size;
    let Placed { backend, devices, path, placement } =
        flags.place(model, options.mtp && model.experts.mtp_that_runs().is_some(), console)?;
    let mut found = None;
    let mut contexts = |planned: &Model| {
        found = Some(outline(planned, &model.experts, corpora, options)?);
        let contexts = profile_contexts(planned, &model.experts, corpora, options);
        Ok(vec![contexts.map_err(Failure::input)?])
    };
    let interrupt = options.windows.settings.interrupt;
    let demand = flags.plan(backend, path, &placement, &mut contexts, interrupt).map_err(not_loaded)?;
    let free = available_memory();
    let (lacks, remarks) = demand.check(free);
    let memory = MemoryRow::of(&demand, free);
    let found = found.expect("the model was planned");
    let devices: Vec<DeviceRow> = devices
        .into_iter()
        .map(|device| DeviceRow {
            memory_free: free_on(&device),
            name: device.name,
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
            "memory": memory, "fits": lacks.is_empty(),
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
    let devices: Vec<String> = devices.into_iter().map(|device| device.name).collect();
    text.push_str(&format!("the model has {}, to run on {}\n", ByteCount(model_bytes), devices.join(", ")));
    text.push('\n');
    text.push_str(&MemoryRow::table(&memory, &console.style()));
    print_styled(&text)?;
    remarks.iter().for_each(|text| console.remark(text));
    if !lacks.is_empty() {
        console.remark(&with_hint(&DoesNotFit { path: path.to_owned(), lacks }.into()));
    }
    Ok(())
}

/// A model that cannot be planned cannot be loaded.
fn not_loaded(failure: Failure) -> Failure {
    match failure {
        Failure::Running(error) if matches!(error.downcast_ref(), Some(LlamaError::Load { .. })) => {
            Failure::Input(error)
        }
        failure => failure,
    }
}
