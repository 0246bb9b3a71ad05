//! `moeslice profile`: usage of the experts from a model and corpora.

use super::dry_run::{self, LookFlags};
use crate::console::failure::{Failure, with_hint};
use crate::console::output_files::{OutputFiles, write_small};
use crate::console::{Console, print};
use crate::corpus::CorpusText;
use crate::flags::llama::LlamaFlags;
use crate::flags::loading::Loaded;
use crate::flags::mtp::{Mtp, MtpFlag};
use crate::flags::preflight::Contexts;
use crate::flags::texts::TextFlags;
use crate::gguf;
use crate::llama::Model;
use crate::moe::{LayerKind, MoeModel};
use crate::plan::PlanError;
use crate::profile::{self, ProfileOptions, Share};
use crate::progress::{Interrupt, Unit, stage};
use crate::sys::catch_interrupts;
use crate::usage::Usage;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `profile`.
#[derive(Args, Clone, Debug)]
pub struct ProfileArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// The usage file to write; "-" for stdout
    #[arg(short, long, value_name = "U.json", required_unless_present_any = ["dry_run", "show_text"])]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub look: LookFlags,
    /// Compute part I of N alone, every Nth batch; `merge` makes one usage of the parts
    #[arg(long, value_name = "I/N", value_parser = share, conflicts_with = "generate")]
    pub part: Option<Share>,
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

/// A part, such as 2/4.
fn share(text: &str) -> Result<Share, String> {
    let parse = |number: &str| number.parse::<u32>().ok();
    let share = text.split_once('/').and_then(|(index, of)| Some((parse(index)?, parse(of)?)));
    let share = share.filter(|(index, of)| (1..=*of).contains(index) && *of <= 1 << 16);
    share
        .map(|(index, of)| Share { index, of })
        .ok_or_else(|| "expected a part and how many there are, such as 2/4".into())
}

/// Runs `profile`.
pub fn profile(args: &ProfileArgs, console: Console) -> Result<(), Failure> {
    args.mtp.refuse_plan("a profile counts")?;
    let model = MoeModel::open(&args.model).map_err(Failure::input)?;
    check_mtp(&model, args.mtp, console)?;
    let corpora = args.texts.read(&model, console)?;
    let to_file = args.output.as_deref().filter(|output| *output != Path::new("-"));
    if let Some(output) = to_file {
        let mut outputs = OutputFiles::default();
        outputs.add_small(output, args.force)?;
        outputs.check_inputs(model.files().chain(args.texts.inputs(&corpora)))?;
    }
    if args.look.show_text {
        return dry_run::show_text(&corpora);
    }
    let interrupt = catch_interrupts();
    if args.look.dry_run {
        let options = ProfileOptions {
            share: args.part,
            ..options(&model.file, &args.texts, &args.llama, args.mtp, interrupt)
        };
        return dry_run::dry_run(&model, &corpora, &args.llama, &options, args.look, console);
    }
    let (texts, llama, how) = (&args.texts, &args.llama, (args.mtp, args.part));
    let nothing = &mut |_: &Model| Ok(Vec::new());
    let (usage, _) = run_profile(&model, &corpora, texts, llama, how, (console, interrupt), nothing)?;
    if let Some(part) = &usage.run.part {
        let batches = part.batches;
        console
            .remark(&format!("{part} of {batches} batches: `moeslice merge` makes one usage of all parts"));
    }
    let Some(output) = to_file else { return Ok(print(&usage.to_json())?) };
    write_small(output, usage.to_json().as_bytes(), args.force, console)?;
    console.remark(&format!("wrote {}", output.display()));
    Ok(())
}

/// A block of multi-token prediction that has experts and will get no counts is an error when a profile of it was asked
/// for, and else worth a word.
fn check_mtp(model: &MoeModel, flag: MtpFlag, console: Console) -> Result<(), Failure> {
    let experts = &model.experts;
    if let Some(text) = flag.remark(experts) {
        console.remark(text);
    }
    let uncounted = experts
        .layers
        .iter()
        .find(|layer| layer.kind == LayerKind::Mtp && experts.mtp_that_runs() != Some(layer.layer));
    let Some(layer) = uncounted else { return Ok(()) };
    let error = anyhow::Error::new(PlanError::Mtp { layer: layer.layer, runs: false });
    match flag.mtp {
        Some(Mtp::Profile) => Err(Failure::input({
            let text = format!("{}: {error}", model.path().display());
            error.context(text)
        })),
        Some(Mtp::Drop | Mtp::Plan) => Ok(()),
        None => {
            console.remark(&with_hint(&error));
            Ok(())
        }
    }
}

/// How the texts are profiled.
pub fn options(
    model: &gguf::Model,
    texts: &TextFlags,
    flags: &LlamaFlags,
    mtp: MtpFlag,
    interrupt: Interrupt,
) -> ProfileOptions {
    ProfileOptions {
        windows: flags.windows(model, interrupt),
        chunks: texts.chunks,
        weights: texts.collects_weights(),
        activations: texts.collects_activations(),
        hold_out: texts.hold_out(),
        parse_special: texts.parse_special,
        generate: texts.generate,
        lm_head: texts.lm_head,
        share: None,
        mtp: mtp.runs_block(),
    }
}

/// Loads the model and profiles it with `corpora`. `then` says which contexts come after those of the pass.
pub fn run_profile(
    model: &MoeModel,
    corpora: &[CorpusText],
    texts: &TextFlags,
    flags: &LlamaFlags,
    (mtp, share): (MtpFlag, Option<Share>),
    (console, interrupt): (Console, Interrupt),
    then: Contexts<'_>,
) -> Result<(Usage, Loaded), Failure> {
    let runs_mtp = mtp.runs_block() && model.experts.mtp_that_runs().is_some();
    let options = ProfileOptions { share, ..options(&model.file, texts, flags, mtp, interrupt) };
    let mut contexts = |planned: &Model| {
        let of_pass = profile::profile_contexts(planned, &model.experts, corpora, &options);
        let of_pass = of_pass.map_err(Failure::input)?;
        Ok([of_pass].into_iter().chain(then(planned)?).collect())
    };
    let loaded = flags.load_model(model, runs_mtp, (console, interrupt), &mut contexts)?;
    let profiled = stage(&mut *console.progress(), "profiling", Unit::Tokens, |progress| {
        profile::profile(&loaded.model, &model.experts, corpora, &options, progress)
    })?;
    // What was profiled has to be what the header was read of.
    model.file.check_unchanged().map_err(Failure::running)?;
    say_what_was_profiled(&profiled, console);
    let circumstances = profile::Circumstances {
        llama_cpp: loaded.backend.version(),
        variables: loaded.backend.variables(),
        ctx_size: options.windows.ctx_size,
    };
    let usage =
        profiled.into_usage(model.path(), &model.identity, circumstances).map_err(Failure::running)?;
    Ok((usage, loaded))
}

fn say_what_was_profiled(profiled: &profile::Profile, console: Console) {
    profiled.remarks.iter().for_each(|text| console.remark(text));
    let tokens: u64 = profiled.corpora.iter().map(|corpus| corpus.tokens).sum();
    let seconds = profiled.wall.as_secs_f64();
    let names: Vec<String> =
        profiled.corpora.iter().map(|corpus| format!("{} ({} tokens)", corpus.name, corpus.tokens)).collect();
    console.remark(&format!(
        "profiled {} on {}: {tokens} tokens in {seconds:.1} s, {:.0} tokens/s",
        names.join(", "),
        profiled.devices.join(", "),
        tokens as f64 / seconds.max(1e-9)
    ));
}
