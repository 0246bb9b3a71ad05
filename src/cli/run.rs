//! `moeslice run`: profile, plan, cut and verify, in one process.

use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::cut::CutFlags;
use super::failure::Failure;
use super::llama_flags::LlamaFlags;
use super::output::remark;
use super::profile::{TextFlags, run_profile};
use super::source::Source;
use crate::plan::{self, Keep};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The model, a GGUF file; any shard of several (-m)
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    #[arg(long, value_name = "K", help = KEEP_HELP)]
    pub keep: Keep,
    /// The usage file to write; default: beside the output, OUT.usage.json
    #[arg(long, value_name = "U.json")]
    pub usage_out: Option<PathBuf>,
    #[command(flatten)]
    pub texts: TextFlags,
    #[command(flatten)]
    pub choose: ChooseFlags,
    #[command(flatten)]
    pub cut: CutFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `run`.
pub fn run(args: &RunArgs, quiet: bool) -> Result<(), Failure> {
    super::catch_interrupts();
    let source = Source::open(&args.model)?;
    let usage_out = args.usage_out.clone().unwrap_or_else(|| args.cut.output.with_extension("usage.json"));
    if usage_out == args.cut.output {
        return Err(Failure::arguments(format!(
            "--usage-out and --output are the same file, {}",
            usage_out.display()
        )));
    }
    // All that can be refused is refused before the model is loaded.
    let chooser = args.choose.chooser();
    let k = chooser.check_early(&source, &args.keep)?;
    args.cut.check(&source, k)?;
    super::check_small_output(&usage_out, args.cut.force)?;

    let usage = run_profile(&source, &args.texts, &args.llama, quiet)?;
    super::write_small_output(&usage_out, usage.to_json().as_bytes(), args.cut.force)?;
    remark(quiet, &format!("wrote {}", usage_out.display()));

    let plan = chooser.plan(&source, &usage, &args.keep, args.cut.shards)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    args.cut.cut(&source, &plan, coverages.as_ref(), quiet)?.print(args.cut.json, quiet)
}
