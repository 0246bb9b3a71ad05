//! The arguments of `eval`.

use crate::flags::cache_loop::LoopFlags;
use crate::flags::eval_texts::EvalTextFlags;
use crate::flags::llama::LlamaFlags;
use crate::plan::{KeepTarget, Pins};
use crate::score::Blend;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `eval`.
#[derive(Args, Clone, Debug)]
pub struct EvalArgs {
    /// The model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: PathBuf,
    /// Compare with this model, from which MODEL was cut
    #[arg(long, value_name = "BASE", conflicts_with_all = ["usage", "plan"])]
    pub base: Option<PathBuf>,
    /// Try cuts by this usage file, or imatrix, without writing them
    #[arg(long, value_name = "U.json", requires = "keep")]
    pub usage: Option<PathBuf>,
    /// The numbers of experts to try, each as in `prune --keep`
    #[arg(long, value_name = "K,…", value_delimiter = ',', requires = "usage", allow_hyphen_values = true)]
    pub keep: Vec<KeepTarget>,
    /// Try the cut of this plan, too. Repeatable
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Vec<PathBuf>,
    /// What ranks the experts; several scores are tried beside each other
    #[arg(long, value_name = "SCORE,…", value_delimiter = ',', requires = "usage")]
    pub score: Vec<String>,
    /// Experts that stay whatever their score
    #[arg(long, value_name = "LAYER:ID,…", requires = "usage")]
    pub always_keep: Option<Pins>,
    /// Keep super experts whatever their score
    #[arg(long, requires = "usage")]
    pub protect_super: bool,
    /// Share of each corpus in the ranking, such as dev=0.5,pm=0.5
    #[arg(long, value_name = "NAME=SHARE,…", requires = "usage")]
    pub blend: Option<Blend>,
    /// Also measure the model against itself, computed in ubatches of another size or on another device: what is mere noise
    #[arg(long, value_name = "UBATCH|DEV", num_args = 0..=1, default_missing_value = "")]
    pub noise: Option<String>,
    /// The measurement to write
    #[arg(short, long, value_name = "E.json")]
    pub output: Option<PathBuf>,
    /// Also write a page of what was measured, in one file; with --usage, of that usage, too
    #[arg(long, value_name = "R.html")]
    pub report: Option<PathBuf>,
    /// Replace existing outputs
    #[arg(long)]
    pub force: bool,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub cache: LoopFlags,
    #[command(flatten)]
    pub texts: EvalTextFlags,
    #[command(flatten)]
    pub llama: LlamaFlags,
}
