//! `moeslice run`: profile, plan, cut and verify, in one command.

use super::eval::eval_failure;
use super::profile::run_profile;
use super::within::Within;
use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::evaluate::WhatIf;
use crate::flags::card::{self, CardSubject};
use crate::flags::keep::RunKeep;
use crate::flags::llama::LlamaFlags;
use crate::flags::mtp::MtpFlag;
use crate::flags::output::CutFlags;
use crate::flags::page;
use crate::flags::selection::{KEEP_HELP, SelectionFlags};
use crate::flags::texts::TextFlags;
use crate::llama::Model;
use crate::page::UsagePage;
use crate::plan::{self, KeepTarget};
use crate::sys::catch_interrupts;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    #[arg(long, value_name = "K", help = format!("{KEEP_HELP}; or kl:0.05, the fewest whose mean KL divergence stays under it"), allow_hyphen_values = true)]
    pub keep: RunKeep,
    /// The usage file to write; default: beside the output, OUT.usage.json
    #[arg(long, value_name = "U.json")]
    pub usage_out: Option<PathBuf>,
    /// Write a page about the profile and the cut, with plots, in one file
    #[arg(long, value_name = "R.html")]
    pub report: Option<PathBuf>,
    /// Write a model card, README.md, beside the pruned model
    #[arg(long)]
    pub card: bool,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub texts: TextFlags,
    #[command(flatten)]
    pub choose: SelectionFlags,
    #[command(flatten)]
    pub cut: CutFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `run`.
pub fn run(args: &RunArgs, console: Console) -> Result<(), Failure> {
    args.mtp.refuse_plan("run makes its own from the profile")?;
    let model = args.mtp.open(&args.model, console)?;
    let usage_out = args.usage_out.clone().unwrap_or_else(|| args.cut.output.with_extension("usage.json"));
    if usage_out == Path::new("-") {
        return Err(Failure::arguments("--usage-out names a file; stdout has the table of the cut"));
    }
    // All that can be refused is refused before the model is loaded.
    let selection = args.choose.selection();
    let k = selection.check_early(&model, &args.keep.early(), console)?;
    let mut outputs = OutputFiles::default();
    args.cut.check(&model, k, &mut outputs)?;
    outputs.add_small(&usage_out, args.cut.force)?;
    if let Some(report) = &args.report {
        outputs.add_small(report, args.cut.force)?;
    }
    if args.card {
        card::check(&args.cut, &mut outputs)?;
    }
    let corpora = args.texts.read(&model, console)?;
    outputs.check_inputs(model.files().chain(args.texts.inputs(&corpora)))?;
    if !args.texts.splits_corpora() {
        selection
            .check_corpora(corpora.iter().map(|corpus| corpus.name.as_str()), args.texts.score_needs())?;
    }

    let interrupt = catch_interrupts();
    let mut search_contexts = |planned: &Model| match args.keep {
        RunKeep::Target(_) => Ok(Vec::new()),
        RunKeep::Kl(_) => {
            let options = args.llama.windows(&model.file, interrupt);
            // How many predictions there are to keep is not known yet: what is kept needs one context.
            let contexts = WhatIf::contexts(planned, model.chosen(), &options, 0, u64::MAX);
            Ok(vec![contexts.map_err(eval_failure)?])
        }
    };
    let (texts, llama) = (&args.texts, &args.llama);
    let (usage, loaded) = run_profile(
        &model,
        &corpora,
        texts,
        llama,
        (args.mtp, None),
        (console, interrupt),
        &mut search_contexts,
    )?;
    write_small(&usage_out, usage.to_json().as_bytes(), args.cut.force, console)?;
    console.remark(&format!("wrote {}", usage_out.display()));

    let selection = selection.resolved(&usage)?;
    let target = match args.keep {
        RunKeep::Target(target) => target,
        RunKeep::Kl(bound) => {
            let search = Within {
                model: &model,
                loaded: &loaded,
                corpora: &corpora,
                usage: &usage,
                selection: &selection,
                texts,
                llama,
            };
            KeepTarget::Count(search.find(bound, console, interrupt)?)
        }
    };
    drop(loaded);
    let mut plan = selection.plan(&model, &usage, &target, args.cut.shards)?;
    plan.target = Some(args.keep.to_string());
    let coverages = plan::coverage(&usage, &plan.keep);
    let stability = page::stability(&selection, &model, &usage, &plan, console)?;
    let written = args.cut.cut(&model, (&plan, coverages.as_ref()), &[&usage_out], console, interrupt);
    let written = written.map_err(|failure| failure.after_usage(usage_out.clone()))?;
    if let Some(report) = &args.report {
        let sizes = page::sizes(&selection, &model, &usage, Some(&plan), args.cut.shards)?;
        let (usage, bytes) = (&usage, Some((written.bytes_before, written.bytes)));
        let (sizes, plan, command) = (Some(&sizes), Some(&plan), &page::command_line());
        let text = UsagePage { usage, sizes, plan, bytes, measured: None, command }.render();
        // A profile that routed nothing made no plan.
        let text = text.unwrap_or_default();
        page::write(report, &text, args.cut.force, console)?;
    }
    if args.card {
        let (coverages, stability) = (coverages.as_ref(), stability.as_ref());
        let subject = CardSubject { model: &model, plan: &plan, coverages, stability, measured: None };
        card::write(&args.cut, &subject, &written, console)?;
    }
    written.print(args.cut.json, console)
}
