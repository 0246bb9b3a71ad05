//! `moeslice devices`: what llama.cpp can run on here.

use super::failure::Failure;
use super::output::{bytes, print, print_json, table};
use crate::llama::Backend;
use serde::Serialize;

#[derive(Serialize)]
struct Row {
    name: String,
    kind: &'static str,
    description: String,
    memory_free: u64,
    memory_total: u64,
}

/// Lists the devices.
pub fn devices(json: bool) -> Result<(), Failure> {
    let backend = Backend::start().map_err(Failure::running)?;
    let rows: Vec<Row> = backend
        .devices()
        .into_iter()
        .map(|device| Row {
            name: device.name,
            kind: device.kind.as_str(),
            description: device.description,
            memory_free: device.memory_free,
            memory_total: device.memory_total,
        })
        .collect();
    if json {
        return print_json(&serde_json::json!({ "llama_cpp": backend.version(), "rows": rows }));
    }
    let lines = rows.into_iter().map(|row| {
        vec![row.name, row.kind.to_owned(), bytes(row.memory_free), bytes(row.memory_total), row.description]
    });
    print(&table(&["device", "kind", "free", "total", "description"], lines))
}
