//! `moeslice imatrix`: an importance matrix for a pruned model, from that of its base.

use crate::console::Console;
use crate::console::failure::Failure;
use crate::console::output_files::{OutputFiles, write_small};
use crate::moe::MoeModel;
use crate::slice::slice_imatrix;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `imatrix`.
#[derive(Args, Clone, Debug)]
pub struct ImatrixArgs {
    /// The pruned model, a GGUF file; any shard of several
    #[arg(short, long, value_name = "PRUNED")]
    pub model: PathBuf,
    /// The importance matrix that llama-imatrix made of the model before it was cut
    #[arg(long, value_name = "BASE.imatrix.gguf")]
    pub imatrix: PathBuf,
    /// The importance matrix to write, for llama-quantize --imatrix
    #[arg(short, long, value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Replace an existing output
    #[arg(long)]
    pub force: bool,
}

/// Runs `imatrix`.
pub fn imatrix(args: &ImatrixArgs, console: Console) -> Result<(), Failure> {
    let model = MoeModel::open(&args.model).map_err(Failure::input)?;
    let mut outputs = OutputFiles::default();
    outputs.add_small(&args.output, args.force)?;
    outputs.check_inputs(model.files().chain([args.imatrix.as_path()]))?;
    let sliced = slice_imatrix(&args.imatrix, &model).map_err(Failure::input)?;
    sliced.remarks.iter().for_each(|text| console.remark(text));
    write_small(&args.output, &sliced.bytes, args.force, console)?;
    let (matrices, layers) = (sliced.sliced, model.experts.layers.len());
    console.remark(&format!(
        "wrote {}: {matrices} matrices of experts in {layers} layers",
        args.output.display()
    ));
    Ok(())
}
