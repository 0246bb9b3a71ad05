//! `moeslice verify`: whether a pruned model is a true cut of its base.

use crate::console::failure::Failure;
use crate::console::{self, Console};
use crate::gguf;
use crate::moe::{MoeModel, Provenance};
use crate::plan::Plan;
use crate::progress::{Unit, stage};
use crate::slice;
use crate::sys::catch_interrupts;
use crate::units::ByteCount;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// The model that was cut
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The pruned model
    #[arg(value_name = "PRUNED")]
    pub pruned: PathBuf,
    /// Compare with what this plan keeps, rather than with the pruned model's own id map
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
}

/// Runs `verify`.
pub fn verify(args: &VerifyArgs, console: Console) -> Result<(), Failure> {
    let mut base = MoeModel::open(&args.base).map_err(Failure::input)?;
    let pruned = gguf::Model::open(&args.pruned).map_err(Failure::input)?;
    let keep = match &args.plan {
        None => None,
        Some(path) => {
            if Provenance::says_mtp_dropped(pruned.metadata()) {
                base.drop_mtp().map_err(Failure::input)?;
            }
            let mut plan = Plan::read(path).map_err(Failure::input)?;
            plan.leave_out(base.written());
            plan.check(base.written(), &base.identity, path, base.path()).map_err(Failure::input)?;
            Some(plan.keep)
        }
    };
    let interrupt = catch_interrupts();
    let verified = stage(&mut *console.progress(), "verifying", Unit::Bytes, |progress| {
        slice::verify_model(&base, &pruned, keep.as_ref(), progress, interrupt)
    });
    let verified = match verified {
        Ok(verified) => verified,
        Err(slice::VerifyError::Interrupted) => return Err(Failure::Interrupted),
        Err(error) => {
            if let (slice::VerifyError::Differs(found), true) = (&error, args.json) {
                console::print_json(&serde_json::json!({
                    "true_cut": false,
                    "differences": found.others.saturating_add(1),
                    "first": found.first,
                }))?;
            }
            return Err(Failure::input(error));
        }
    };
    if args.json {
        return Ok(console::print_json(&serde_json::json!({
            "true_cut": true,
            "tensors": verified.tensors,
            "slabs": verified.slabs,
            "bytes": verified.bytes,
            "unchecked": verified.unchecked,
            "seconds": verified.duration.as_secs_f64(),
            "keep": verified.kept,
        }))?);
    }
    for what in &verified.unchecked {
        console.remark(&format!("not compared: {what}"));
    }
    console::print(&format!(
        "{} is a true cut of {}: {} tensors, {} expert slabs, {} compared in {:.1} s\n",
        args.pruned.display(),
        args.base.display(),
        verified.tensors,
        verified.slabs,
        ByteCount(verified.bytes),
        verified.duration.as_secs_f64()
    ))?;
    Ok(())
}
