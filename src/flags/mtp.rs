//! The flag that says what becomes of blocks of multi-token prediction.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::moe::{Experts, LayerKind, MoeModel};
use clap::{Args, ValueEnum};
use std::path::Path;

/// What becomes of blocks of multi-token prediction (MTP, which llama.cpp calls NextN).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mtp {
    /// Run the block too, and choose its experts by what it activates
    Profile,
    /// Leave the block out of the written file
    Drop,
    /// Keep the experts of the block that the plan file names
    Plan,
}

/// The flag.
#[derive(Args, Clone, Copy, Debug)]
pub struct MtpFlag {
    /// What becomes of a multi-token-prediction (MTP, NextN) block; without the flag a profile runs it where llama.cpp
    /// can, and a plan file names its experts
    #[arg(long, value_enum, hide_possible_values = true, value_name = "profile|drop|plan")]
    pub mtp: Option<Mtp>,
}

impl MtpFlag {
    /// Opens the model at `path` for a cut that does with its MTP blocks what the flag says.
    pub fn open(self, path: &Path, console: Console) -> Result<MoeModel, Failure> {
        let mut model = MoeModel::open(path).map_err(Failure::input)?;
        if let Some(text) = self.remark(&model.experts) {
            console.remark(text);
        }
        match self.mtp {
            Some(Mtp::Drop) => model.drop_mtp().map_err(Failure::input)?,
            Some(Mtp::Plan) => model.choose_from_trunk(),
            Some(Mtp::Profile) | None => {}
        }
        Ok(model)
    }

    /// Whether the block is to be run while text is profiled.
    #[cfg(feature = "llama")]
    pub fn runs_block(self) -> bool {
        self.mtp != Some(Mtp::Drop)
    }

    /// Refuses `--mtp plan` for what has no plan to read; `what` says so.
    pub fn refuse_plan(self, what: &str) -> Result<(), Failure> {
        match self.mtp {
            Some(Mtp::Plan) => Err(Failure::arguments(format!(
                "--mtp plan takes the experts of the MTP block from a plan file, and {what}; the ids that stay in another \
                 layer mean nothing there: give --mtp profile or --mtp drop, or a plan to prune --plan"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses `--mtp profile` beside a plan.
    pub fn refuse_profile(self) -> Result<(), Failure> {
        match self.mtp {
            Some(Mtp::Profile) => Err(Failure::arguments(
                "--mtp profile has no effect on a plan, which says what stays in the MTP block too: leave it out, or give \
                 --mtp drop",
            )),
            _ => Ok(()),
        }
    }

    /// What there is to say about the flag and a model, if anything.
    pub fn remark(self, experts: &Experts) -> Option<&'static str> {
        let with_experts = experts.layers.iter().any(|layer| layer.kind == LayerKind::Mtp);
        match self.mtp {
            Some(_) if experts.n_mtp == 0 => Some("--mtp has no effect: the model has no MTP block"),
            Some(Mtp::Profile | Mtp::Plan) if !with_experts => {
                Some("--mtp has no effect: the MTP block has no experts, and stays as it is")
            }
            _ => None,
        }
    }
}
