//! `moeslice devices`: what llama.cpp can run on here.

use crate::console::failure::Failure;
use crate::console::{Console, print_json, print_styled};
use crate::flags::rpc::RpcFlags;
use crate::report::fitting;
use crate::units::ByteCount;
use serde::Serialize;

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

/// Lists the devices.
pub fn devices(json: bool, rpc: &RpcFlags, console: Console) -> Result<(), Failure> {
    let backend = rpc.start()?;
    let rows: Vec<Row> = backend
        .devices()
        .into_iter()
        .map(|device| Row {
            software: device.is_software(),
            remote: device.is_remote(),
            name: device.name,
            kind: device.kind.as_str(),
            description: device.description,
            memory_free: device.memory_free,
            memory_total: device.memory_total,
        })
        .collect();
    if json {
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
