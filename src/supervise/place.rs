//! Where a supervised process was when it was last heard of.

use super::event::Event;
use crate::progress::Unit;
use crate::sys::{ProcessState, process_state, waits_in};
use crate::units::ByteCount;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Lines that are kept for a message.
const TAIL: usize = 4;

/// The stage that a process is in, how far it has come, and what it last said.
#[derive(Clone, Debug, Default)]
pub struct Place {
    stage: Option<(String, Unit)>,
    what: Option<String>,
    done: u64,
    total: u64,
    activity: u64,
    tail: VecDeque<String>,
}

impl Place {
    /// Takes an event in; says whether it shows that the work went on.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Begin { stage, unit } => {
                self.stage = Some((stage.clone(), (*unit).into()));
                (self.what, self.done, self.total) = (None, 0, 0);
            }
            Event::Update { done, total } => (self.done, self.total) = (*done, *total),
            Event::Name { what } => self.what = Some(what.clone()),
            Event::End => (self.stage, self.what) = (None, None),
            Event::Log { line } => self.keep(line),
            Event::Beat { activity } => {
                let went_on = *activity != self.activity;
                self.activity = *activity;
                return went_on;
            }
        }
        true
    }

    /// Keeps a line for a message.
    pub(super) fn keep(&mut self, line: &str) {
        let line: String = line.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if line.is_empty() {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// The last lines of the process and of llama.cpp's log, or nothing.
    pub(super) fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.tail.iter().map(String::as_str).collect();
        if lines.is_empty() { String::new() } else { format!("; it last said: {}", lines.join(" | ")) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((stage, unit)) = &self.stage else { return f.write_str("between two stages") };
        write!(f, "while {stage}")?;
        if let Some(what) = &self.what {
            write!(f, " {what:?}")?;
        }
        match unit {
            _ if self.total == 0 => Ok(()),
            Unit::Percent => write!(f, ", at {} %", self.done),
            Unit::Tokens => write!(f, ", after {} of {} tokens", self.done, self.total),
            Unit::Bytes => write!(f, ", after {} of {}", ByteCount(self.done), ByteCount(self.total)),
        }
    }
}

/// A process that has gone silent.
#[derive(Clone, Debug)]
pub struct Stall {
    /// Its id.
    pub pid: u32,
    /// Where it was.
    pub place: Place,
    /// For how long nothing has gone on.
    pub silent: Duration,
    /// What the kernel says of it.
    pub state: ProcessState,
    /// The function of the kernel that it waits in.
    pub waits_in: Option<String>,
    /// Whether it could be ended.
    pub ended: bool,
}

impl Stall {
    pub(super) fn new(pid: u32, place: Place, silent: Duration) -> Self {
        Stall { pid, place, silent, state: process_state(pid), waits_in: waits_in(pid), ended: false }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { pid, place, silent, state, waits_in, ended } = self;
        write!(f, "nothing has gone on for {} s {place}: process {pid} {}", silent.as_secs(), state.words())?;
        if let Some(function) = waits_in {
            write!(f, " (in {function})")?;
        }
        f.write_str(if *ended { ", and was ended" } else { ", and did not end when it was killed" })?;
        f.write_str(&place.last_lines())
    }
}
