//! The supervised side: progress, log and heartbeat as lines to the parent.

use super::event::{DeviceDemand, Event};
use crate::llama::LogLevel;
use crate::preflight::{Demand, Share};
use crate::progress::{Progress, Unit};
use crate::sys;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable that tells a process the id of the parent that supervises it.
pub(super) const PARENT: &str = "MOESLICE_SUPERVISED_BY";

/// Between two heartbeats.
pub(super) const BEAT: Duration = Duration::from_millis(500);

/// Between two updates of one stage: more often, nobody could see them.
const UPDATE: Duration = Duration::from_millis(50);

/// The parent that supervises this process, if one does.
pub fn supervisor() -> Option<u32> {
    std::env::var(PARENT).ok()?.parse().ok()
}

/// Begins to be supervised: ends with the parent, leaves interrupts to it, and tells it every half second how far
/// `activity` has come.
pub fn begin(parent: u32, activity: fn() -> u64) {
    sys::end_with_parent(parent);
    sys::leave_repeated_interrupts();
    thread::spawn(move || {
        loop {
            send(&Event::Beat { activity: activity() });
            thread::sleep(BEAT);
        }
    });
}

/// Tells the parent a line of llama.cpp's log. What only helps to debug llama.cpp is none of its business.
pub fn log(line: &str, level: LogLevel) {
    let warning = match level {
        LogLevel::Debug => return,
        LogLevel::Info => false,
        // A pass that needs nothing but the routing asks for it.
        LogLevel::Warning => !line.contains("model default pooling_type"),
    };
    send(&Event::Log { line: line.to_owned(), warning });
}

/// Tells the parent, if there is one, what is going to be taken of each device.
pub fn tell_demand(demand: &Demand) {
    let of = |share: &Share| DeviceDemand {
        device: share.name().to_owned(),
        weights: share.weights + share.mapped,
        keys_values: share.keys_values,
        compute: share.compute,
    };
    if supervisor().is_some() {
        send(&Event::Demand { devices: demand.shares().iter().map(of).collect() });
    }
}

/// Tells the parent, if there is one, of a file that stays when this process ends early.
pub fn tell_kept(path: &Path) {
    if supervisor().is_some() {
        send(&Event::Kept { path: path.to_owned() });
    }
}

/// Writes a whole line at once, so that lines of several threads do not mix. That nobody reads is no reason to fail.
fn send(event: &Event) {
    let _ = std::io::stderr().write_all(event.to_line().as_bytes());
}

/// Tells the parent the progress of this process.
#[derive(Debug, Default)]
pub struct Reporter {
    last: Option<Instant>,
}

impl Progress for Reporter {
    fn begin(&mut self, stage: &str, unit: Unit) {
        self.last = None;
        send(&Event::Begin { stage: stage.to_owned(), unit: unit.into() });
    }

    fn update(&mut self, done: u64, total: u64) {
        if done < total && self.last.is_some_and(|last| last.elapsed() < UPDATE) {
            return;
        }
        self.last = Some(Instant::now());
        send(&Event::Update { done, total });
    }

    fn name(&mut self, what: &str) {
        send(&Event::Name { what: what.to_owned() });
    }

    fn end(&mut self) {
        send(&Event::End);
    }
}
