//! What a supervised process tells its parent, one line of its stderr each.
//!
//! Everything else that the process or a driver in it prints to stderr is a line too, and is shown as it is. A line of
//! ours begins with a character that no text has reason to begin with.

use crate::progress::Unit;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// ASCII's record separator.
const MARK: char = '\u{1e}';

/// Something that happened in a supervised process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A stage of the work begins.
    Begin {
        /// Its name.
        stage: String,
        /// What it counts.
        unit: EventUnit,
    },
    /// So much of the stage is done, of so much.
    Update {
        /// Done.
        done: u64,
        /// In all.
        total: u64,
    },
    /// What the stage works on.
    Name {
        /// Such as a corpus.
        what: String,
    },
    /// The stage is over.
    End,
    /// A line of llama.cpp's log.
    Log {
        /// The line.
        line: String,
        /// Whether something is wrong.
        warning: bool,
    },
    /// The memory that is going to be taken of each device.
    Demand {
        /// One entry a device.
        devices: Vec<DeviceDemand>,
    },
    /// A file that stays when the process ends early, from when on it is there.
    Kept {
        /// Its path.
        path: PathBuf,
    },
    /// The process is alive; `activity` grows while the graph is computed.
    Beat {
        /// Nodes of the graph that were gone by.
        activity: u64,
    },
}

/// Bytes that are going to be taken of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDemand {
    /// The device.
    pub device: String,
    /// For weights.
    pub weights: u64,
    /// For keys and values.
    pub keys_values: u64,
    /// To compute in.
    pub compute: u64,
}

/// [`Unit`] as it crosses between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventUnit {
    /// Bytes of files.
    Bytes,
    /// Tokens through the model.
    Tokens,
    /// Hundredths.
    Percent,
}

impl From<Unit> for EventUnit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Bytes => Self::Bytes,
            Unit::Tokens => Self::Tokens,
            Unit::Percent => Self::Percent,
        }
    }
}

impl From<EventUnit> for Unit {
    fn from(unit: EventUnit) -> Self {
        match unit {
            EventUnit::Bytes => Self::Bytes,
            EventUnit::Tokens => Self::Tokens,
            EventUnit::Percent => Self::Percent,
        }
    }
}

impl Event {
    /// The line, with its end.
    pub fn to_line(&self) -> String {
        let json = serde_json::to_string(self).expect("events are JSON");
        format!("{MARK}{json}\n")
    }

    /// Reads a line; `None` for one that is no event.
    pub fn parse(line: &str) -> Option<Event> {
        serde_json::from_str(line.strip_prefix(MARK)?.trim_end()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_line_reads_back() {
        for event in [
            Event::Begin { stage: "load\ning".into(), unit: EventUnit::Percent },
            Event::Update { done: 1, total: u64::MAX },
            Event::Name { what: "dév".into() },
            Event::End,
            Event::Log { line: "\u{1e}{}".into(), warning: true },
            Event::Demand {
                devices: vec![DeviceDemand { device: "CPU".into(), weights: 1, keys_values: 2, compute: 3 }],
            },
            Event::Kept { path: "a b\n.json".into() },
            Event::Beat { activity: 7 },
        ] {
            let line = event.to_line();
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert_eq!(Event::parse(&line), Some(event));
        }
    }

    #[test]
    fn other_line_is_no_event() {
        for line in ["", "moeslice: error: x", "\u{1e}", "\u{1e}{\"Beat\":{}}", "{\"End\":null}"] {
            assert_eq!(Event::parse(line), None, "{line:?}");
        }
    }
}
