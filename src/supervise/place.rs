//! Where a supervised process was when it was last heard of.

use super::event::{DeviceDemand, Event};
use super::step::Step;
use crate::preflight::PLANNING;
use crate::progress::Unit;
use crate::sys::{ProcessState, process_state, waits_in};
use crate::units::ByteCount;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
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
    step: Option<Step>,
    demand: Vec<DeviceDemand>,
    kept: Vec<PathBuf>,
    /// What llama.cpp last said, when nothing was wrong.
    said: Option<String>,
    /// The last lines of the process, and of llama.cpp's warnings those since the work last went on.
    tail: VecDeque<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    text: String,
    is_warning: bool,
}

impl Place {
    /// Takes an event in; says whether it shows that the work went on.
    pub(super) fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Begin { stage, unit } => {
                self.stage = Some((stage.clone(), (*unit).into()));
                (self.what, self.done, self.total) = (None, 0, 0);
                self.go_on();
            }
            Event::Update { done, total } => {
                (self.done, self.total) = (*done, *total);
                if *done > 0 {
                    self.go_on();
                }
            }
            Event::Name { what } => self.what = Some(what.clone()),
            Event::End => (self.stage, self.what, self.step) = (None, None, None),
            Event::Log { line, warning } => {
                self.step = Step::told_by(line).unwrap_or(self.step);
                if *warning {
                    self.keep_line(line, true);
                } else {
                    self.said = Some(plain(line)).filter(|line| !line.is_empty());
                }
            }
            Event::Demand { devices } => self.demand.clone_from(devices),
            Event::Kept { path } if !self.kept.contains(path) => self.kept.push(path.clone()),
            Event::Kept { .. } => {}
            Event::Beat { activity } => {
                let went_on = *activity != self.activity;
                self.activity = *activity;
                return went_on;
            }
        }
        true
    }

    /// What llama.cpp said before the work went on tells nothing of where it stopped.
    fn go_on(&mut self) {
        (self.step, self.said) = (None, None);
        self.tail.retain(|line| !line.is_warning);
    }

    /// Keeps a line of the process for a message.
    pub(super) fn keep(&mut self, line: &str) {
        self.keep_line(line, false);
    }

    fn keep_line(&mut self, line: &str, is_warning: bool) {
        let text = plain(line);
        if text.is_empty() {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(Line { text, is_warning });
    }

    /// The last lines of the process and of what llama.cpp warned of, or else what that last said.
    pub(super) fn last_lines(&self) -> String {
        let lines: Vec<&str> = self.tail.iter().map(|line| line.text.as_str()).collect();
        match &self.said {
            _ if !lines.is_empty() => format!("; it last said: {}", lines.join(" | ")),
            Some(line) if self.step.is_none() => format!("; llama.cpp last said: {line}"),
            _ => String::new(),
        }
    }

    /// The files that stay, or nothing.
    pub(super) fn kept(&self) -> String {
        let paths = self.kept.iter().filter(|path| path.exists());
        let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        if paths.is_empty() {
            String::new()
        } else {
            format!("; what was finished is kept: {}", paths.join(", "))
        }
    }
}

/// A line, fit for a message.
fn plain(line: &str) -> String {
    line.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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
        }?;
        match self.step {
            Some(step) if stage != PLANNING => write!(f, ", {}", step.words(&self.demand)),
            _ => Ok(()),
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
    /// Whether batches were computed; before, memory is taken and devices are set up.
    pub fn was_computing(&self) -> bool {
        self.place.step.is_none() && matches!(self.place.stage, Some((_, Unit::Tokens)))
    }

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
        f.write_str(&place.last_lines())?;
        match place.kept() {
            kept if kept.is_empty() => f.write_str("; no file was written"),
            kept => f.write_str(&kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::EventUnit;

    fn log(line: &str) -> Event {
        Event::Log { line: format!("{line}\n"), warning: false }
    }

    fn stall(events: &[Event]) -> Stall {
        let mut place = Place::default();
        events.iter().for_each(|event| {
            place.take(event);
        });
        Stall::new(u32::MAX, place, Duration::from_secs(600))
    }

    const LOADING: &str = "load_tensors: loading model tensors, this can take a while... (load_mode = none)";

    #[test]
    fn stall_of_an_allocation_names_the_bytes_and_the_device() {
        let device =
            |weights, compute| DeviceDemand { device: "Vulkan0".into(), weights, keys_values: 0, compute };
        let begin = |stage: &str, unit| Event::Begin { stage: stage.into(), unit };
        let demand = Event::Demand { devices: vec![device(8 << 30, 1 << 30)] };
        let mut events = vec![demand, begin("loading", EventUnit::Percent), log(LOADING)];
        let text = stall(&events).to_string();
        assert!(
            text.contains("while loading, allocating buffers of weights: 8.00 GiB on Vulkan0: process"),
            "{text}"
        );
        assert!(!text.contains("load_tensors") && text.ends_with("no file was written"), "{text}");
        assert!(!stall(&events).was_computing());

        // A model of which so much is loaded has its memory.
        events.push(Event::Update { done: 63, total: 100 });
        let text = stall(&events).to_string();
        assert!(text.contains("while loading, at 63 %: process"), "{text}");

        events.extend([
            Event::End,
            begin("profiling", EventUnit::Tokens),
            log("sched_reserve: reserving ..."),
        ]);
        let text = stall(&events).to_string();
        assert!(
            text.contains("while profiling, allocating buffers to compute in: 1.00 GiB on Vulkan0"),
            "{text}"
        );
        events.extend([log("sched_reserve: graph: nodes = 237"), Event::Update { done: 12, total: 40 }]);
        assert!(stall(&events).was_computing());
        let text = stall(&events).to_string();
        assert!(text.contains("while profiling, after 12 of 40 tokens: process"), "{text}");
    }

    #[test]
    fn what_is_planned_is_not_told_as_allocated() {
        let stage = Event::Begin { stage: PLANNING.into(), unit: EventUnit::Percent };
        let text = stall(&[stage, log(LOADING)]).to_string();
        assert!(text.contains("while planning memory: process"), "{text}");
    }

    #[test]
    fn warnings_and_files_that_are_there_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("u.json"), "").unwrap();
        let kept = |name: &str| Event::Kept { path: path(name) };
        let warning = Event::Log { line: "something is odd\n".into(), warning: true };
        let text = stall(&[warning, log("all is well"), kept("u.json"), kept("later.json")]).to_string();
        let words = format!(
            "it last said: something is odd; what was finished is kept: {}",
            path("u.json").display()
        );
        assert!(text.ends_with(&words), "{text}");
        let warning = Event::Log { line: "something was odd\n".into(), warning: true };
        let text = stall(&[warning, Event::Update { done: 1, total: 2 }, log("all is well")]).to_string();
        assert!(text.contains("; llama.cpp last said: all is well"), "{text}");
    }
}
