//! What a model and its contexts take of each device.

use super::{TextStyle, fitting};
use crate::preflight::{Demand, Share};
use crate::units::ByteCount;
use serde::Serialize;

/// What is taken of one device, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryRow {
    /// The device.
    pub device: String,
    /// Weights that are loaded.
    pub weights: u64,
    /// Weights that are mapped from the file, and take memory as far as there is some.
    pub mapped: u64,
    /// Keys and values.
    pub keys_values: u64,
    /// Room to compute in.
    pub compute: u64,
    /// Outputs of a batch.
    pub output: u64,
    /// All but what is mapped.
    pub needed: u64,
    /// What is free, where the system tells.
    pub free: Option<u64>,
}

impl MemoryRow {
    /// A row for each device, of which the processor has so much free.
    pub fn of(demand: &Demand, processor_free: Option<u64>) -> Vec<MemoryRow> {
        let row = |share: &Share| MemoryRow {
            device: share.name().to_owned(),
            weights: share.weights,
            mapped: share.mapped,
            keys_values: share.keys_values,
            compute: share.compute,
            output: share.output,
            needed: share.needed(),
            free: if share.device.is_some() { share.free() } else { processor_free },
        };
        demand.shares().iter().map(row).collect()
    }

    /// The rows as a table.
    pub fn table(rows: &[MemoryRow], style: &TextStyle) -> String {
        let header =
            ["memory", "weights", "mapped", "keys and values", "to compute in", "outputs", "needed", "free"];
        let line = |row: &MemoryRow| {
            let MemoryRow { weights, mapped, keys_values, compute, output, needed, .. } = *row;
            let bytes = [weights, mapped, keys_values, compute, output, needed].map(Some);
            let cells = bytes.into_iter().chain([row.free]).map(|bytes| match bytes {
                Some(bytes) => ByteCount(bytes).to_string(),
                None => "unknown".to_owned(),
            });
            [row.device.clone()].into_iter().chain(cells).collect()
        };
        let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
        fitting(style, &header, &lines, (1, 1))
    }
}
