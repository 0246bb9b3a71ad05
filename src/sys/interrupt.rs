//! The signals that ask a program to end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::progress::Interrupt;

/// Exit code of a program that its user interrupted.
const INTERRUPTED: libc::c_int = 130;

static FLAG: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU32 = AtomicU32::new(0);
static PATIENT: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C, SIGTERM and SIGHUP are the [`Interrupt`] that is given back; a second one ends the process at
/// once, with exit code 130.
///
/// A signal that the parent chose to ignore, as `nohup` does with SIGHUP, stays ignored.
pub fn catch_interrupts() -> Interrupt {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: `sigaction` is a plain struct for which zero is a valid value, both pointers are to locals, and the
        // handler does nothing that is not allowed in one: it touches atomics and calls `_exit`.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) != 0
                || action.sa_sigaction == libc::SIG_IGN
            {
                continue;
            }
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    Interrupt::when(&FLAG)
}

/// From now on a second signal is counted ([`interrupts`]) and does not end the process: somebody else sees to its end.
/// In a supervised child that is the parent; in the parent, which has a child to end first, the code that waits.
pub fn leave_repeated_interrupts() {
    PATIENT.store(true, Ordering::SeqCst);
}

/// How often a signal has asked this process to end.
pub fn interrupts() -> u32 {
    COUNT.load(Ordering::SeqCst)
}

extern "C" fn on_signal(_signal: libc::c_int) {
    FLAG.store(true, Ordering::SeqCst);
    if COUNT.fetch_add(1, Ordering::SeqCst) > 0 && !PATIENT.load(Ordering::SeqCst) {
        // SAFETY: ends the process without running anything else; allowed in a signal handler.
        unsafe { libc::_exit(INTERRUPTED) }
    }
}
