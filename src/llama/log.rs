//! llama.cpp's log: captured, quiet by default, and part of our errors when a call fails.

use super::error::LogTail;
use super::ffi;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Lines kept for an error message.
const TAIL: usize = 4;

static VERBOSE: AtomicBool = AtomicBool::new(false);
static SINK: OnceLock<fn(&str, LogLevel)> = OnceLock::new();
static STATE: Mutex<State> = Mutex::new(State { tail: VecDeque::new(), partial: String::new(), level: 0 });

struct State {
    tail: VecDeque<String>,
    /// A line that llama.cpp has begun and not yet ended.
    partial: String,
    level: ffi::ggml_log_level,
}

/// Shows llama.cpp's log on stderr as it comes.
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// To those alone who look for a fault in llama.cpp.
    Debug,
    /// It says what is done.
    Info,
    /// Something is wrong.
    Warning,
}

/// Hands every whole line of llama.cpp's log to `sink`, of whatever level. The first sink stays.
pub fn set_log_sink(sink: fn(&str, LogLevel)) {
    let _ = SINK.set(sink);
}

/// Takes over llama.cpp's and ggml's log.
pub(super) fn capture() {
    // SAFETY: the callback is a static function that needs no user data; it may be called from any thread.
    unsafe {
        ffi::llama_log_set(Some(callback), std::ptr::null_mut());
    }
}

/// Forgets what was logged so far, so that a later tail belongs to the call that follows.
pub(super) fn clear() {
    if let Ok(mut state) = STATE.lock() {
        state.tail.clear();
    }
}

/// The last warnings and errors since [`clear`], `message` (of an exception) last.
pub(super) fn tail(message: &str) -> LogTail {
    let mut lines: Vec<String> =
        STATE.lock().map(|state| state.tail.iter().cloned().collect()).unwrap_or_default();
    if !message.is_empty() {
        lines.push(message.to_owned());
    }
    LogTail(lines)
}

unsafe extern "C" fn callback(level: ffi::ggml_log_level, text: *const c_char, _user_data: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp hands over a NUL-terminated string that lives for the duration of the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A panic must not cross into C++; a line of log is no reason for one to matter.
    let _ = catch_unwind(|| receive(level, &text));
}

fn receive(level: ffi::ggml_log_level, text: &str) {
    if VERBOSE.load(Ordering::Relaxed) {
        // It repeats metadata of the file, whose control characters would steer the terminal.
        let plain = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { ' ' } else { c };
        let text: String = text.chars().map(plain).collect();
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    let Ok(mut state) = STATE.lock() else { return };
    if level != ffi::GGML_LOG_LEVEL_CONT {
        state.level = level;
    }
    let level = match state.level {
        ffi::GGML_LOG_LEVEL_ERROR | ffi::GGML_LOG_LEVEL_WARN => LogLevel::Warning,
        ffi::GGML_LOG_LEVEL_INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    for piece in text.split_inclusive('\n') {
        state.partial.push_str(piece);
        if !piece.ends_with('\n') {
            continue;
        }
        let line = std::mem::take(&mut state.partial);
        if let Some(sink) = SINK.get() {
            sink(&line, level);
        }
        if level == LogLevel::Warning && !line.trim().is_empty() {
            if state.tail.len() == TAIL {
                state.tail.pop_front();
            }
            state.tail.push_back(line.trim().to_owned());
        }
    }
}
