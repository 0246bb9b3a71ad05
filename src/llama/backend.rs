//! The one-time start of llama.cpp, and its devices.

use super::error::LlamaError;
use super::{ffi, log};
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_char};
use std::io::Write;

/// A started llama.cpp. There is one for the whole process.
#[derive(Debug)]
pub struct Backend(());

/// A device that llama.cpp can run on.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) raw: ffi::ggml_backend_dev_t,
    /// The name to ask for it by, such as `Vulkan0` or `CPU`.
    pub name: String,
    /// What it is, as its driver says.
    pub description: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Bytes free now, as the driver says.
    pub memory_free: u64,
    /// Bytes in all, as the driver says.
    pub memory_total: u64,
}

// SAFETY: devices are registered once when llama.cpp starts and live, unchanged, until the process ends.
unsafe impl Send for Device {}
// SAFETY: as above; all that is read through the pointer is immutable.
unsafe impl Sync for Device {}

/// The kinds of devices that ggml tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The processor, on system memory.
    Cpu,
    /// A graphics card with memory of its own.
    Gpu,
    /// A graphics unit that shares the system's memory.
    IntegratedGpu,
    /// Something that helps the processor (BLAS, AMX, …).
    Accelerator,
}

impl DeviceKind {
    /// A word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::Gpu => "GPU",
            DeviceKind::IntegratedGpu => "integrated GPU",
            DeviceKind::Accelerator => "accelerator",
        }
    }
}

static BACKEND: OnceCell<Backend> = OnceCell::new();

impl Backend {
    /// Starts llama.cpp at the first call; later calls return the same.
    ///
    /// # Errors
    /// When no device at all is there, not even the processor.
    pub fn start() -> Result<&'static Backend, LlamaError> {
        BACKEND.get_or_try_init(|| {
            log::capture();
            // SAFETY: both are safe to call at any time; the callback is a static function.
            unsafe {
                ffi::ggml_set_abort_callback(Some(on_abort));
                ffi::llama_backend_init();
            }
            let backend = Backend(());
            if backend.devices().is_empty() {
                return Err(LlamaError::UnknownDevice { name: "CPU".into(), known: Vec::new() });
            }
            Ok(backend)
        })
    }

    /// The version that llama.cpp gives itself.
    pub fn version(&self) -> String {
        // SAFETY: returns a static NUL-terminated string.
        unsafe { text(ffi::llama_version()) }
    }

    /// All devices, in llama.cpp's order.
    pub fn devices(&self) -> Vec<Device> {
        // SAFETY: no preconditions.
        let count = unsafe { ffi::ggml_backend_dev_count() };
        // SAFETY: `index` is below the count, and registered devices live until the process ends.
        (0..count).map(|index| unsafe { Device::read(ffi::ggml_backend_dev_get(index)) }).collect()
    }

    /// The devices with the given names, as `-dev` takes them.
    ///
    /// # Errors
    /// Names the first that does not exist, and those that do.
    pub fn devices_named(&self, names: &[String]) -> Result<Vec<Device>, LlamaError> {
        let all = self.devices();
        let find = |name: &String| {
            all.iter().find(|device| device.name.eq_ignore_ascii_case(name)).cloned().ok_or_else(|| {
                let known = all.iter().map(|device| device.name.clone()).chain(["none".to_owned()]).collect();
                LlamaError::UnknownDevice { name: name.clone(), known }
            })
        };
        names.iter().map(find).collect()
    }

    /// The architectures that this llama.cpp knows, with whether it can write a model of each.
    pub fn architectures(&self) -> Vec<(String, bool)> {
        (0..)
            .map_while(|index| {
                // SAFETY: any index is allowed; NULL ends the list, other results are static strings.
                let name = unsafe { ffi::moeslice_architecture_name(index) };
                // SAFETY: as above.
                (!name.is_null()).then(|| unsafe { (text(name), ffi::moeslice_architecture_saves(index)) })
            })
            .collect()
    }
}

impl Device {
    /// # Safety
    /// `raw` must be a registered device.
    unsafe fn read(raw: ffi::ggml_backend_dev_t) -> Device {
        let (mut memory_free, mut memory_total) = (0, 0);
        // SAFETY: the caller vouches for the device; name and description are strings that it owns.
        unsafe {
            ffi::ggml_backend_dev_memory(raw, &mut memory_free, &mut memory_total);
            Device {
                raw,
                name: text(ffi::ggml_backend_dev_name(raw)),
                description: text(ffi::ggml_backend_dev_description(raw)),
                kind: match ffi::ggml_backend_dev_type(raw) {
                    ffi::GGML_BACKEND_DEVICE_TYPE_CPU => DeviceKind::Cpu,
                    ffi::GGML_BACKEND_DEVICE_TYPE_GPU => DeviceKind::Gpu,
                    ffi::GGML_BACKEND_DEVICE_TYPE_IGPU => DeviceKind::IntegratedGpu,
                    _ => DeviceKind::Accelerator,
                },
                memory_free: memory_free as u64,
                memory_total: memory_total as u64,
            }
        }
    }

    /// Whether layers can be put on it with `-ngl`.
    pub fn is_gpu(&self) -> bool {
        matches!(self.kind, DeviceKind::Gpu | DeviceKind::IntegratedGpu)
    }
}

/// # Safety
/// `pointer` must be NULL or a NUL-terminated string that lives for the duration of the call.
pub(super) unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: vouched for by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A failed assertion in ggml ends the process whatever this returns; so it ends here, with one line instead of a core
/// dump. Nothing half-written is lost by it: files appear under their names only when they are whole.
unsafe extern "C" fn on_abort(message: *const c_char) {
    // SAFETY: ggml hands over a NUL-terminated string.
    let message = unsafe { text(message) };
    let line = format!("moeslice: error: llama.cpp gave up: {}\n", message.trim().replace('\n', " "));
    let _ = std::io::stderr().write_all(line.as_bytes());
    // SAFETY: ends the process at once, without running destructors of a library in an undefined state.
    unsafe { libc::_exit(1) }
}
