//! `moeslice devices`: what llama.cpp can run on here, and what a model would take of it.

use crate::console::failure::{Failure, with_hint};
use crate::console::{Console, print_json, print_styled};
use crate::flags::llama::LlamaFlags;
use crate::flags::preflight::free_on;
use crate::llama::Model;
use crate::moe::MoeModel;
use crate::preflight::DoesNotFit;
use crate::report::{MemoryRow, fitting};
use crate::sys::{available_memory, catch_interrupts};
use crate::units::ByteCount;
use crate::windows::{PassConfig, PassNeeds};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Arguments of `devices`.
#[derive(Args, Clone, Debug)]
pub struct DevicesArgs {
    /// Show what this model, run as `profile` runs it, would take of each device; nothing of it is loaded
    #[arg(short, long, value_name = "MODEL", env = "LLAMA_ARG_MODEL")]
    pub model: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub llama: LlamaFlags,
}

#[derive(Serialize)]
struct Row {
    name: String,
    kind: &'static str,
    description: String,
    memory_free: u64,
    memory_total: u64,
    /// The processor computes what it gets.
    software: bool,
    /// It is a device of an RPC server, of whatever kind.
    remote: bool,
}

/// Lists the devices, or shows what a model takes of them.
pub fn devices(args: &DevicesArgs, console: Console) -> Result<(), Failure> {
    if let Some(model) = &args.model {
        return demand(&MoeModel::open(model).map_err(Failure::input)?, args, console);
    }
    let backend = args.llama.rpc.start()?;
    let rows: Vec<Row> = backend
        .devices()
        .into_iter()
        .map(|device| Row {
            software: device.is_software(),
            remote: device.is_remote(),
            memory_free: free_on(&device),
            name: device.name,
            kind: device.kind.as_str(),
            description: device.description,
            memory_total: device.memory_total,
        })
        .collect();
    if args.json {
        return Ok(print_json(&serde_json::json!({ "llama_cpp": backend.version(), "rows": rows }))?);
    }
    let line = |row: Row| {
        let [free, total] = [row.memory_free, row.memory_total].map(|bytes| ByteCount(bytes).to_string());
        let kind = match (row.remote, row.software) {
            (true, _) => "of an RPC server".to_owned(),
            (_, true) => format!("{}, by the processor", row.kind),
            _ => row.kind.to_owned(),
        };
        vec![row.name, kind, row.description, free, total]
    };
    let lines: Vec<_> = rows.into_iter().map(line).collect();
    let header = ["device", "kind", "description", "free", "total"];
    Ok(print_styled(&fitting(&console.style(), &header, &lines, (1, 3)))?)
}

/// Shows what `model` takes of each device.
fn demand(model: &MoeModel, args: &DevicesArgs, console: Console) -> Result<(), Failure> {
    let interrupt = catch_interrupts();
    let placed = args.llama.place(model, false, console)?;
    let options = args.llama.windows(&model.file, interrupt);
    let mut contexts = |planned: &Model| {
        let config = PassConfig::new(planned, &model.experts, &options, PassNeeds::default());
        Ok(vec![vec![config.map_err(Failure::input)?.wanted()]])
    };
    let found = args.llama.plan(placed.backend, placed.path, &placed.placement, &mut contexts, interrupt)?;
    let free = available_memory();
    let rows = MemoryRow::of(&found, free);
    let (lacks, remarks) = found.check(free);
    let fits = lacks.is_empty();
    if args.json {
        return Ok(print_json(&serde_json::json!({
            "llama_cpp": placed.backend.version(), "model": model.path(), "rows": rows, "fits": fits,
        }))?);
    }
    print_styled(&MemoryRow::table(&rows, &console.style()))?;
    remarks.iter().for_each(|text| console.remark(text));
    if !fits {
        console.remark(&with_hint(&DoesNotFit { path: placed.path.to_owned(), lacks }.into()));
    }
    Ok(())
}
