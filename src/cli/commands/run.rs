//! `moeslice run`: profile, plan, cut and verify, in one command.

use super::profile::run_profile;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::flags::llama::LlamaFlags;
use crate::cli::flags::mtp::MtpFlag;
use crate::cli::flags::output::CutFlags;
use crate::cli::flags::selection::{KEEP_HELP, SelectionFlags};
use crate::cli::flags::texts::TextFlags;
use crate::cli::output_files::{OutputFiles, write_small};
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
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true)]
    pub keep: KeepTarget,
    /// The usage file to write; default: beside the output, OUT.usage.json
    #[arg(long, value_name = "U.json")]
    pub usage_out: Option<PathBuf>,
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
    let k = selection.check_early(&model, &args.keep)?;
    let mut outputs = OutputFiles::default();
    args.cut.check(&model, k, &mut outputs)?;
    outputs.add_small(&usage_out, args.cut.force)?;
    let corpora = args.texts.read(&model, console)?;
    outputs.check_inputs(model.files().chain(args.texts.inputs(&corpora)))?;
    if !args.texts.splits_corpora() {
        selection.check_corpora(
            corpora.iter().map(|corpus| corpus.name.as_str()),
            args.texts.collects_weights(),
        )?;
    }

    let interrupt = catch_interrupts();
    let usage = run_profile(&model, &corpora, &args.texts, &args.llama, args.mtp, (console, interrupt))?;
    write_small(&usage_out, usage.to_json().as_bytes(), args.cut.force)?;
    console.remark(&format!("wrote {}", usage_out.display()));

    let plan = selection.plan(&model, &usage, &args.keep, args.cut.shards)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    let report = args.cut.cut(&model, &plan, coverages.as_ref(), console, interrupt);
    report.map_err(|failure| failure.after_usage(usage_out))?.print(args.cut.json, console)
}
