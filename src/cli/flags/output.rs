//! Cutting a model by a plan, checking the result, and the table about it: what `prune` and `run` have in common.

use super::selection::corpus_lines;
use crate::cli::console::{Console, print, print_json};
use crate::cli::failure::Failure;
use crate::cli::output_files::output_failure;
use crate::gguf;
use crate::moe::{KeptExperts, MoeModel, ShardPolicy};
use crate::plan::{Coverages, Plan, Ties};
use crate::progress::{Interrupt, Unit, stage};
use crate::report::percent;
use crate::slice::{self, Cut, Options, SliceError, VerifyError};
use crate::units::{ByteCount, parse_bytes};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where the pruned model goes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct CutFlags {
    /// The pruned model to write
    #[arg(short, long, value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Replace existing outputs
    #[arg(long)]
    pub force: bool,
    /// Files of the output: "keep" as the input has, "single", or a size of each such as 2GiB
    #[arg(long, value_name = "keep|single|SIZE", default_value = "keep", value_parser = shards)]
    pub shards: ShardPolicy,
    /// Do not compare the written file with its source
    #[arg(long)]
    pub no_verify: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

fn shards(text: &str) -> Result<ShardPolicy, String> {
    match text {
        "keep" => Ok(ShardPolicy::Keep),
        "single" => Ok(ShardPolicy::Single),
        size => parse_bytes(size)
            .map(ShardPolicy::Size)
            .map_err(|_| "expected keep, single, or a size such as 2GiB".into()),
    }
}

/// What a cut did.
#[derive(Debug, Serialize)]
pub struct CutReport {
    /// The files that were written.
    pub files: Vec<String>,
    /// Bytes of the source.
    pub bytes_before: u64,
    /// Bytes of what was written.
    pub bytes: u64,
    /// Experts of a layer before.
    pub n_expert: u32,
    /// Experts of a layer now.
    pub k: u32,
    /// Blocks of multi-token prediction that were left out.
    pub mtp_dropped: u32,
    /// Share of the routing that the kept experts had, where a usage is at hand.
    #[serde(flatten)]
    pub kept: Option<KeptShare>,
    /// Where the cut fell between equal scores.
    pub ties: Option<Ties>,
    /// Seconds that the writing took.
    pub slice_seconds: f64,
    /// Seconds that the comparison with the source took.
    pub verify_seconds: Option<f64>,
}

/// The share of the routing that kept experts cover.
#[derive(Debug, Serialize)]
pub struct KeptShare {
    /// Mean over the layers.
    pub coverage_mean: f64,
    /// Of the worst layer.
    pub coverage_worst: f64,
    /// Which layer that is.
    pub worst_layer: u32,
}

impl From<&Coverages> for KeptShare {
    fn from(coverages: &Coverages) -> Self {
        let all = coverages.all;
        KeptShare { coverage_mean: all.mean, coverage_worst: all.worst, worst_layer: all.worst_layer }
    }
}

impl CutFlags {
    /// Refuses outputs that could not be written, before any long work, and adds them to `outputs`. `k` is the number
    /// of experts, where known.
    #[cfg(feature = "llama")]
    pub fn check(
        &self,
        model: &MoeModel,
        k: Option<u32>,
        outputs: &mut crate::cli::output_files::OutputFiles,
    ) -> Result<(), Failure> {
        self.check_name()?;
        let smallest = model.experts.possible_counts().first().copied().unwrap_or(model.experts.n_expert);
        let keep = KeptExperts::any(model.written(), k.unwrap_or(smallest));
        let provenance = model.provenance("", "", Vec::new());
        let cut = Cut { model: &model.file, experts: model.written(), keep: &keep, provenance };
        let checked =
            slice::check(&cut, &self.output, &self.options(Interrupt::NEVER)).map_err(slice_failure)?;
        checked.files.iter().try_for_each(|(path, _)| outputs.add(path, path))
    }

    fn check_name(&self) -> Result<(), Failure> {
        if self.output == Path::new("-") {
            return Err(Failure::arguments("a model cannot be written to stdout: name a file"));
        }
        Ok(())
    }

    fn options(&self, interrupt: Interrupt) -> Options {
        Options { force: self.force, shards: self.shards, interrupt }
    }

    /// Cuts `model` by `plan`, and compares the result with it.
    pub fn cut(
        &self,
        model: &MoeModel,
        plan: &Plan,
        coverages: Option<&Coverages>,
        console: Console,
        interrupt: Interrupt,
    ) -> Result<CutReport, Failure> {
        self.check_name()?;
        let score = plan.score.as_deref().unwrap_or("plan");
        let target = plan.target.clone().unwrap_or_else(|| plan.k.to_string());
        let corpora =
            corpus_lines(plan.corpora.iter().map(|corpus| (corpus.name.as_str(), corpus.sha256.clone())));
        let provenance = model.provenance(score, &target, corpora);
        let cut = Cut { model: &model.file, experts: model.written(), keep: &plan.keep, provenance };

        let begin = Instant::now();
        let written = stage(&mut *console.progress(), "writing", Unit::Bytes, |progress| {
            slice::prune(&cut, &self.output, &self.options(interrupt), progress)
        });
        let written = written.map_err(slice_failure)?;
        let slice_seconds = begin.elapsed().as_secs_f64();
        let verify_seconds = match written.files.first() {
            Some((first, _)) if !self.no_verify => {
                Some(verify(model, first, &plan.keep, console, interrupt)?)
            }
            _ => None,
        };
        Ok(CutReport {
            bytes_before: model.file.total_bytes(),
            bytes: written.bytes(),
            files: written.files.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect(),
            n_expert: model.experts.n_expert,
            k: plan.k,
            mtp_dropped: model.written().mtp_dropped,
            kept: coverages.map(KeptShare::from),
            ties: plan.ties,
            slice_seconds,
            verify_seconds,
        })
    }
}

/// Compares a pruned file with its source; gives the seconds that it took.
fn verify(
    model: &MoeModel,
    pruned: &Path,
    keep: &KeptExperts,
    console: Console,
    interrupt: Interrupt,
) -> Result<f64, Failure> {
    let pruned = gguf::Model::open(pruned).map_err(Failure::running)?;
    let verified = stage(&mut *console.progress(), "verifying", Unit::Bytes, |progress| {
        slice::verify(&model.file, &pruned, Some(keep), progress, interrupt)
    });
    verified.map(|verified| verified.duration.as_secs_f64()).map_err(|error| match error {
        VerifyError::Interrupted => Failure::InterruptedCheck,
        error => Failure::running(error),
    })
}

impl CutReport {
    /// Prints the report.
    pub fn print(&self, json: bool, console: Console) -> Result<(), Failure> {
        if json {
            return Ok(print_json(self)?);
        }
        if console.quiet {
            return Ok(());
        }
        let share = self.bytes as f64 / self.bytes_before.max(1) as f64;
        let mut rows = vec![
            (
                "size",
                format!("{} → {} ({})", ByteCount(self.bytes_before), ByteCount(self.bytes), percent(share)),
            ),
            ("experts", format!("{} → {} a layer", self.n_expert, self.k)),
        ];
        if self.mtp_dropped > 0 {
            let blocks = if self.mtp_dropped == 1 { "the block is" } else { "the blocks are" };
            rows.push(("MTP", format!("{blocks} left out")));
        }
        if let Some(kept) = &self.kept {
            let worst = format!("{} in layer {}", percent(kept.coverage_worst), kept.worst_layer);
            rows.push((
                "routing kept",
                format!("{} on average, at worst {worst}", percent(kept.coverage_mean)),
            ));
        }
        if let Some(ties) = self.ties.as_ref().filter(|ties| ties.experts > 0) {
            let layers = if ties.layers == 1 { "layer" } else { "layers" };
            let text =
                format!("{} experts of equal score at the cut, in {} {layers}", ties.experts, ties.layers);
            rows.push(("ties", text));
        }
        let verified = match self.verify_seconds {
            Some(seconds) => format!(", compared with the source in {seconds:.1} s"),
            None => ", not compared with the source".into(),
        };
        rows.push(("written", format!("in {:.1} s{verified}", self.slice_seconds)));
        for file in &self.files {
            rows.push(("", file.clone()));
        }
        let lines: String = rows.iter().map(|(name, value)| format!("{name:<16}{value}\n")).collect();
        Ok(print(&lines)?)
    }
}

/// How a failed cut ends the command.
pub fn slice_failure(error: SliceError) -> Failure {
    match error {
        SliceError::Interrupted => Failure::Interrupted,
        SliceError::File(error) => output_failure(error),
        error @ (SliceError::SameFile { .. } | SliceError::NoName { .. }) => Failure::Arguments(error.into()),
        error @ (SliceError::Shape { .. } | SliceError::HashTable { .. } | SliceError::Alignment { .. }) => {
            Failure::input(error)
        }
        error => Failure::running(error),
    }
}
