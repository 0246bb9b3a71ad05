//! The supervising side: a child, what it tells, and how long it may be silent.

use super::child::{BEAT, PARENT};
use super::event::Event;
use super::place::{Place, Stall};
use crate::progress::{Interrupt, Progress};
use crate::sys;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a child may take to end once it was asked to, before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a killed child is waited for. One that sits in the kernel does not end.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// Bytes of a line that are taken in: a driver may print anything.
const LINE: u64 = 1 << 16;

/// Where the parent shows what the child tells.
pub trait Screen: Progress {
    /// A line that the child, or something in it, printed to stderr.
    fn line(&mut self, text: &str);
}

/// How a supervised process ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// By itself, with an exit code; what there was to say it has said.
    Exited(u8),
    /// The user interrupted it.
    Interrupted,
    /// A signal ended it.
    Crashed {
        /// The signal.
        signal: i32,
        /// What happened, in one line.
        message: String,
    },
    /// It went silent.
    Stalled(Box<Stall>),
}

/// Runs this program with `arguments` in a child until it ends, is silent for longer than `limit`, or `interrupt` comes.
///
/// # Errors
/// When no child can be started.
pub fn supervise(
    arguments: &[OsString],
    limit: Option<Duration>,
    interrupt: Interrupt,
    screen: &mut dyn Screen,
) -> io::Result<Outcome> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments.get(1..).unwrap_or_default())
        .env(PARENT, std::process::id().to_string())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, lines) = channel();
    let stderr = child.stderr.take();
    thread::spawn(move || stderr.into_iter().for_each(|stderr| read_lines(stderr, &sender)));
    let watch = Watch { child, lines, limit, interrupt, place: Place::default(), last: Instant::now() };
    watch.run(screen)
}

/// Hands over each line, until the child has closed its stderr.
fn read_lines(stderr: impl Read, lines: &Sender<String>) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        }
    }
}

struct Watch {
    child: Child,
    lines: Receiver<String>,
    limit: Option<Duration>,
    interrupt: Interrupt,
    place: Place,
    /// When the work was last seen to go on.
    last: Instant,
}

impl Watch {
    fn run(mut self, screen: &mut dyn Screen) -> io::Result<Outcome> {
        let mut asked: Option<Instant> = None;
        loop {
            let open = self.hear(screen);
            if let Some(status) = self.child.try_wait()? {
                // What is still in the pipe was said before the end.
                while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(50)) {
                    self.take(&line, screen);
                }
                screen.end();
                return Ok(self.ended(status, asked.is_some()));
            }
            if !open {
                thread::sleep(Duration::from_millis(20));
            }
            match asked {
                None if self.interrupt.is_set() => {
                    // A child in the foreground has had the signal too; it hears the first one alone.
                    let _ = sys::ask_to_end(self.child.id());
                    asked = Some(Instant::now());
                }
                Some(since) if since.elapsed() > PATIENCE || sys::interrupts() > 1 => {
                    self.kill();
                    screen.end();
                    return Ok(Outcome::Interrupted);
                }
                Some(_) => {}
                None => {
                    let silent = self.last.elapsed();
                    if self.limit.is_some_and(|limit| silent > limit) {
                        screen.end();
                        let mut stall = Stall::new(self.child.id(), self.place.clone(), silent);
                        stall.ended = self.kill();
                        return Ok(Outcome::Stalled(Box::new(stall)));
                    }
                }
            }
        }
    }

    /// Takes in what the child says within a moment; `false` once it has closed its stderr.
    fn hear(&mut self, screen: &mut dyn Screen) -> bool {
        match self.lines.recv_timeout(BEAT / 10) {
            Ok(line) => {
                self.take(&line, screen);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn take(&mut self, line: &str, screen: &mut dyn Screen) {
        let Some(event) = Event::parse(line) else {
            self.last = Instant::now();
            self.place.keep(line);
            screen.line(line.trim_end_matches(['\n', '\r']));
            return;
        };
        if self.place.take(&event) {
            self.last = Instant::now();
        }
        match event {
            Event::Begin { stage, unit } => screen.begin(&stage, unit.into()),
            Event::Update { done, total } => screen.update(done, total),
            Event::Name { what } => screen.name(&what),
            Event::End => screen.end(),
            Event::Log { .. } | Event::Beat { .. } | Event::Demand { .. } | Event::Kept { .. } => {}
        }
    }

    /// Kills the child and waits for its end a little; whether it did end.
    fn kill(&mut self) -> bool {
        let _ = self.child.kill();
        let since = Instant::now();
        while since.elapsed() < AFTER_KILL {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn ended(&self, status: ExitStatus, asked: bool) -> Outcome {
        match (status.code(), status.signal()) {
            (Some(code), _) => Outcome::Exited(u8::try_from(code).unwrap_or(1)),
            // A signal from the keyboard can end a child that does not catch it yet, before it was asked to end.
            _ if asked || self.interrupt.is_set() => Outcome::Interrupted,
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                let name = sys::signal_name(signal);
                let (place, lines, kept) = (&self.place, self.place.last_lines(), self.place.kept());
                let message = format!(
                    "llama.cpp or a driver ended the process {place}: signal {signal} ({name}){lines}{kept}"
                );
                Outcome::Crashed { signal, message }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// What is made of a child that a signal from the keyboard ended before the parent asked it to end.
    fn ended_by_sigint(interrupt: Interrupt) -> Outcome {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (_, lines) = channel();
        let watch =
            Watch { child, lines, limit: None, interrupt, place: Place::default(), last: Instant::now() };
        watch.ended(ExitStatus::from_raw(libc::SIGINT), false)
    }

    #[test]
    fn child_that_an_interrupt_ended_before_it_was_asked_is_interrupted() {
        static FLAG: AtomicBool = AtomicBool::new(true);
        assert!(matches!(ended_by_sigint(Interrupt::when(&FLAG)), Outcome::Interrupted));
        assert!(matches!(ended_by_sigint(Interrupt::NEVER), Outcome::Crashed { signal: libc::SIGINT, .. }));
    }
}
