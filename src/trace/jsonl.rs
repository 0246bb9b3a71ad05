//! JSONL traces.

use super::tokens::{LayerLine, Lines};
use super::{TRACE_SCHEMA, TraceMeta};
use serde::Deserialize;

/// One object a line; the first may be the header.
pub(super) struct JsonLines;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    session: u32,
    #[serde(default)]
    turn: u32,
    #[serde(default)]
    phase: PhaseName,
    ubatch: Option<u64>,
    position: Option<u32>,
    token: Option<i32>,
    layer: u32,
    experts: Vec<u16>,
    used: Option<u32>,
    #[serde(default)]
    values: Vec<f32>,
    z_min: Option<f32>,
    z_mean: Option<f32>,
    z_std: Option<f32>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum PhaseName {
    Prefill,
    #[default]
    Decode,
}

/// What is wrong with a line. Which line is said by who reads them; of this text each is the first.
fn in_line(error: serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

impl Lines for JsonLines {
    fn begin(first: &str) -> Result<(Self, Option<TraceMeta>, bool), String> {
        #[derive(Deserialize)]
        struct Probe {
            schema: Option<String>,
        }
        let probe: Probe = serde_json::from_str(first).map_err(in_line)?;
        match probe.schema.as_deref() {
            None => Ok((JsonLines, None, false)),
            Some(TRACE_SCHEMA) => {
                let meta = serde_json::from_str(first).map_err(in_line)?;
                Ok((JsonLines, Some(meta), true))
            }
            Some(other) => Err(format!("its schema is {other:?}, and this version reads {TRACE_SCHEMA:?}")),
        }
    }

    fn parse(&self, line: &str) -> Result<LayerLine, String> {
        let line: Line = serde_json::from_str(line).map_err(in_line)?;
        let z = line.z_min.zip(line.z_mean).zip(line.z_std);
        Ok(LayerLine {
            session: line.session,
            turn: line.turn,
            prefill: line.phase == PhaseName::Prefill,
            ubatch: line.ubatch,
            position: line.position,
            token: line.token,
            layer: line.layer,
            experts: line.experts,
            used: line.used,
            values: line.values,
            z: z.map(|((min, mean), std)| [min, mean, std]),
        })
    }
}
