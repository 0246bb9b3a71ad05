//! `moeslice verify`: whether a pruned model is a true cut of its base.

use super::INTERRUPT;
use super::failure::Failure;
use super::output::{self, Unit};
use super::source::Source;
use crate::gguf;
use crate::moe::Provenance;
use crate::plan::Plan;
use crate::slice;
use crate::sys::ByteCount;
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
pub fn verify(args: &VerifyArgs, quiet: bool) -> Result<(), Failure> {
    let mut source = Source::open(&args.base)?;
    let pruned = gguf::Model::open(&args.pruned).map_err(Failure::input)?;
    let keep = match &args.plan {
        None => None,
        Some(path) => {
            if Provenance::says_nextn_dropped(pruned.metadata()) {
                source.drop_nextn()?;
            }
            let mut plan = Plan::read(path).map_err(Failure::input)?;
            plan.leave_out(source.written());
            plan.check(source.written(), &source.identity, path, source.model.path())
                .map_err(Failure::input)?;
            Some(plan.keep)
        }
    };
    crate::sys::catch_interrupts(&INTERRUPT);
    let bar = output::progress(quiet, 0, Unit::Bytes);
    bar.set_message("verifying");
    let verified =
        slice::verify_until(&INTERRUPT, &source.model, &pruned, keep.as_ref(), &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
    bar.finish_and_clear();
    let verified = match verified {
        Ok(verified) => verified,
        Err(slice::VerifyError::Interrupted) => return Err(Failure::Interrupted),
        Err(error) => {
            if let (slice::VerifyError::Differs(found), true) = (&error, args.json) {
                output::print_json(&serde_json::json!({
                    "true_cut": false,
                    "differences": found.others.saturating_add(1),
                    "first": found.first,
                }))?;
            }
            return Err(Failure::input(error));
        }
    };
    if args.json {
        return output::print_json(&serde_json::json!({
            "true_cut": true,
            "tensors": verified.tensors,
            "slabs": verified.slabs,
            "bytes": verified.bytes,
            "seconds": verified.duration.as_secs_f64(),
            "keep": verified.kept,
        }));
    }
    output::print(&format!(
        "{} is a true cut of {}: {} tensors, {} expert slabs, {} compared in {:.1} s\n",
        args.pruned.display(),
        args.base.display(),
        verified.tensors,
        verified.slabs,
        ByteCount(verified.bytes),
        verified.duration.as_secs_f64()
    ))
}
