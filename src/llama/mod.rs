//! llama.cpp made safe.
mod ffi;
/// x
pub fn version() -> String {
    unsafe { std::ffi::CStr::from_ptr(ffi::llama_version()).to_string_lossy().into_owned() }
}
