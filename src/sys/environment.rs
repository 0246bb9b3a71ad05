//! The environment of the process.

use std::env;

/// Gives a variable a value when it has none; says whether it did.
///
/// To be called while no other thread reads the environment through C, where nothing guards it.
pub fn set_unset_variable(name: &str, value: &str) -> bool {
    if env::var_os(name).is_some() {
        return false;
    }
    // SAFETY: Rust's own accesses are guarded by a lock; by this function's contract there are no others now.
    unsafe { env::set_var(name, value) };
    true
}

/// Removes the variables whose name begins with `prefix` and that are empty. To be called as [`set_unset_variable`].
pub fn remove_empty_variables(prefix: &str) {
    let empty = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        value.is_empty() && name.to_str().is_some_and(|name| name.starts_with(prefix))
    };
    for (name, _) in env::vars_os().filter(empty) {
        // SAFETY: as in `set_unset_variable`.
        unsafe { env::remove_var(name) };
    }
}

/// Gives the variable `name` the value `value` where `instead` is set, which is then removed. To be called as
/// [`set_unset_variable`].
pub fn replace_variable(instead: &str, name: &str, value: &str) {
    if env::var_os(instead).is_some() {
        // SAFETY: as in `set_unset_variable`.
        unsafe {
            env::remove_var(instead);
            env::set_var(name, value);
        }
    }
}

/// Ends the process at once, without running what C and C++ libraries have registered for its end.
pub fn exit_at_once(code: u8) -> ! {
    // SAFETY: ends the process; what Rust has buffered is the caller's to flush.
    unsafe { libc::_exit(libc::c_int::from(code)) }
}
