//! `moeslice run`: profile, plan, cut and verify, in one process.

use super::choose_flags::{ChooseFlags, KEEP_HELP};
use super::cut::CutFlags;
use super::failure::Failure;
use super::llama_flags::LlamaFlags;
use super::mtp::MtpFlag;
use super::output::remark;
use super::outputs::{Outputs, write_small};
use super::profile::{TextFlags, run_profile};
use super::source::Source;
use crate::plan::{self, Keep};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    #[arg(long, value_name = "K", help = KEEP_HELP, allow_hyphen_values = true)]
    pub keep: Keep,
    /// The usage file to write; default: beside the output, OUT.usage.json
    #[arg(long, value_name = "U.json")]
    pub usage_out: Option<PathBuf>,
    #[command(flatten)]
    pub texts: TextFlags,
    #[command(flatten)]
    pub mtp: MtpFlag,
    #[command(flatten)]
    pub choose: ChooseFlags,
    #[command(flatten)]
    pub cut: CutFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

/// Runs `run`.
pub fn run(args: &RunArgs, quiet: bool) -> Result<(), Failure> {
    args.mtp.refuse_plan("run makes its own from the profile")?;
    let source = Source::open_to_cut(&args.model, args.mtp, quiet)?;
    let usage_out = args.usage_out.clone().unwrap_or_else(|| args.cut.output.with_extension("usage.json"));
    if usage_out == Path::new("-") {
        return Err(Failure::arguments("--usage-out names a file; stdout has the table of the cut"));
    }
    // All that can be refused is refused before the model is loaded.
    let chooser = args.choose.chooser();
    let k = chooser.check_early(&source, &args.keep)?;
    let mut outputs = Outputs::default();
    args.cut.check(&source, k, &mut outputs)?;
    outputs.add_small(&usage_out, args.cut.force)?;
    let corpora = args.texts.read(&source, quiet)?;
    outputs.check_inputs(source.files().chain(args.texts.inputs(&corpora)))?;
    if !args.texts.splits_corpora() {
        chooser.check_corpora(
            corpora.iter().map(|corpus| corpus.name.as_str()),
            args.texts.collects_weights(),
        )?;
    }

    let usage = run_profile(&source, &corpora, &args.texts, &args.llama, args.mtp, quiet)?;
    write_small(&usage_out, usage.to_json().as_bytes(), args.cut.force)?;
    remark(quiet, &format!("wrote {}", usage_out.display()));

    let plan = chooser.plan(&source, &usage, &args.keep, args.cut.shards)?;
    let coverages = plan::coverage(&usage, &plan.keep);
    args.cut.cut(&source, &plan, coverages.as_ref(), quiet)?.print(args.cut.json, quiet)
}
