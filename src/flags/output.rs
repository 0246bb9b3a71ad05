//! Cutting a model by a plan, checking the result, and the table about it: what `prune` and `run` have in common.

use super::selection::corpus_lines;
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, output_failure, tell_leftovers};
use crate::console::{Console, print, print_json};
use crate::moe::{MoeModel, ShardPolicy};
use crate::plan::{Coverages, Plan, Ties};
use crate::progress::Interrupt;
use crate::report::percent;
use crate::slice::{self, Cut, Options, SliceError};
use crate::units::{ByteCount, WithBytes, parse_bytes};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

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

/// The smallest shard that is asked for with a unit of llama.cpp's: less is a count, or a slip.
const LEAST_SHARD: u64 = 1_000_000;

fn shards(text: &str) -> Result<ShardPolicy, String> {
    match text {
        "keep" => return Ok(ShardPolicy::Keep),
        "single" => return Ok(ShardPolicy::Single),
        _ => {}
    }
    match parse_bytes(text) {
        Ok(bytes) if bytes >= LEAST_SHARD => Ok(ShardPolicy::Size(bytes)),
        Ok(count) if text.bytes().all(|byte| byte.is_ascii_digit()) => Err(format!(
            "that is {count} bytes a shard: give the size of each, such as 2GiB; their number follows from it"
        )),
        Ok(_) => Err(format!("a shard has at least {}", WithBytes(LEAST_SHARD))),
        Err(why) => Err(format!("expected keep, single, or a size such as 2GiB: {why}")),
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
    /// What the experts were ranked by; absent for a plan that does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
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
    pub fn check(&self, model: &MoeModel, k: Option<u32>, outputs: &mut OutputFiles) -> Result<(), Failure> {
        self.check_name()?;
        let smallest = model.experts.possible_counts().first().copied().unwrap_or(model.experts.n_expert);
        let keep = crate::moe::KeptExperts::any(model.written(), k.unwrap_or(smallest));
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
        Options { force: self.force, shards: self.shards, verify: !self.no_verify, interrupt }
    }

    /// Cuts `model` by `plan`, and compares the result with it. No output may be one of the `inputs`.
    pub fn cut(
        &self,
        model: &MoeModel,
        (plan, coverages): (&Plan, Option<&Coverages>),
        inputs: &[&Path],
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

        let options = self.options(interrupt);
        let checked = slice::check(&cut, &self.output, &options).map_err(slice_failure)?;
        let mut outputs = OutputFiles::default();
        checked.files.iter().try_for_each(|(path, _)| outputs.add(path, path))?;
        outputs.check_inputs(inputs.iter().copied())?;
        tell_leftovers(&checked.leftovers, console);

        let written = slice::prune(&cut, &self.output, &options, &mut *console.progress());
        let written = written.map_err(slice_failure)?;
        for path in &written.beside {
            console.remark(&format!("{} is of another run and stays beside the new files", path.display()));
        }
        Ok(CutReport {
            bytes_before: model.file.total_bytes(),
            bytes: written.bytes(),
            files: written.files.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect(),
            n_expert: model.experts.n_expert,
            k: plan.k,
            score: plan.score.clone(),
            mtp_dropped: model.written().mtp_dropped,
            kept: coverages.map(KeptShare::from),
            ties: plan.ties,
            slice_seconds: written.duration.as_secs_f64(),
            verify_seconds: written.verified.map(|verified| verified.duration.as_secs_f64()),
        })
    }
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
        if let Some(score) = &self.score {
            rows.push(("ranked by", score.clone()));
        }
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
        error @ (SliceError::SameFile { .. } | SliceError::NoName { .. } | SliceError::ShardName { .. }) => {
            Failure::Arguments(error.into())
        }
        error @ (SliceError::Shape { .. } | SliceError::HashTable { .. } | SliceError::Alignment { .. }) => {
            Failure::input(error)
        }
        error => Failure::running(error),
    }
}
