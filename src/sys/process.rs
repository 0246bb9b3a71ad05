//! What the system says of another process, and signals to it.

use std::io;

/// What a process is doing, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessState {
    /// It computes, or waits for a processor.
    Running,
    /// It waits for something that a signal can interrupt.
    Sleeping,
    /// It waits inside the kernel, and no signal reaches it: not even SIGKILL ends it.
    Uninterruptible,
    /// A signal or a debugger stopped it.
    Stopped,
    /// It ended, and its parent has not asked how.
    Ended,
    /// There is no such process, or the system does not tell.
    Unknown,
}

impl ProcessState {
    /// A few words for a message.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "is running",
            Self::Sleeping => "is sleeping",
            Self::Uninterruptible => "sits in an uninterruptible call of the kernel, which no signal ends",
            Self::Stopped => "was stopped by a signal or a debugger",
            Self::Ended => "has ended",
            Self::Unknown => "is in a state that the system does not tell",
        }
    }

    /// The state that a letter of `/proc/PID/stat` stands for.
    fn of_letter(letter: u8) -> Self {
        match letter {
            b'R' => Self::Running,
            b'S' | b'I' => Self::Sleeping,
            b'D' => Self::Uninterruptible,
            b'T' | b't' => Self::Stopped,
            b'Z' | b'X' => Self::Ended,
            _ => Self::Unknown,
        }
    }
}

/// The state of a process; of several threads, the worst: one that no signal reaches holds up the whole process.
pub fn process_state(pid: u32) -> ProcessState {
    let main = state_in(&format!("/proc/{pid}/stat"));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stuck = |state: &ProcessState| *state == ProcessState::Uninterruptible;
    threads.map(|thread| state_in(&thread.path().join("stat").to_string_lossy())).find(stuck).unwrap_or(main)
}

fn state_in(path: &str) -> ProcessState {
    let Ok(text) = std::fs::read(path) else { return ProcessState::Unknown };
    // The name stands in parentheses and may hold any byte; the state follows the last of them.
    let end = text.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| text.get(end + 2))
        .map_or(ProcessState::Unknown, |&letter| ProcessState::of_letter(letter))
}

/// The function of the kernel in which a process waits, where the system tells.
pub fn waits_in(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    let name = name.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

/// Asks a process to end, as `kill` does. Not as Ctrl-C does: what a shell runs in the background ignores that.
///
/// # Errors
/// When there is no such process, or it is another user's.
pub fn ask_to_end(pid: u32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: sends a signal; no memory is passed.
    match unsafe { libc::kill(pid, libc::SIGTERM) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// From now on this process ends when its parent does, however that ends.
#[cfg(target_os = "linux")]
pub fn end_with_parent(parent: u32) {
    // SAFETY: sets an attribute of this process; no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // The parent may have ended before the call.
    if std::os::unix::process::parent_id() != parent {
        std::process::exit(1);
    }
}

/// Does nothing where the system does not offer it.
#[cfg(not(target_os = "linux"))]
pub fn end_with_parent(_: u32) {}

/// The name of a signal that ends processes, and what it mostly means.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT, a failed assertion",
        libc::SIGSEGV => "SIGSEGV, a fault of memory access",
        libc::SIGBUS => "SIGBUS, a file that shrank or a device that is gone",
        libc::SIGFPE => "SIGFPE, an impossible division",
        libc::SIGILL => "SIGILL, an instruction that this processor lacks",
        libc::SIGKILL => "SIGKILL, by a person or, for want of memory, by the system",
        libc::SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_state_tells_this_process_and_no_other() {
        // The first thread of this process may wait for a disk, which no signal interrupts.
        let own = process_state(std::process::id());
        assert!(
            matches!(own, ProcessState::Running | ProcessState::Sleeping | ProcessState::Uninterruptible),
            "{own:?}"
        );
        assert_eq!(process_state(u32::MAX), ProcessState::Unknown);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn process_state_of_stopped_child_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        // SAFETY: signals our own child.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) };
        let stopped = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            process_state(pid) == ProcessState::Stopped
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stopped);
    }

    #[test]
    fn asking_nobody_to_end_is_an_error() {
        assert!(ask_to_end(u32::MAX).is_err());
    }
}
