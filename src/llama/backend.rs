//! The one-time start of llama.cpp, and its devices.

use super::error::LlamaError;
use super::numa::Numa;
use super::{ffi, log, rpc};
use crate::sys::set_unset_variable;
use once_cell::sync::OnceCell;
use std::ffi::{CStr, c_char};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

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

// SAFETY: devices are registered before a model is loaded and live, unchanged, until the process ends.
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

/// A kind of memory that tensors can be put into.
#[derive(Clone, Debug)]
pub struct BufferType {
    pub(super) raw: ffi::ggml_backend_buffer_type_t,
    /// The name to ask for it by, such as `CPU` or `Vulkan_Host`.
    pub name: String,
}

// SAFETY: kinds of memory belong to devices, which live unchanged until the process ends.
unsafe impl Send for BufferType {}
// SAFETY: as above; all that is read through the pointer is immutable.
unsafe impl Sync for BufferType {}

static BACKEND: OnceCell<Backend> = OnceCell::new();

/// Variables of the environment that were set here, as `NAME=VALUE`.
static VARIABLES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The model file that is being loaded.
static LOADING: Mutex<Option<PathBuf>> = Mutex::new(None);

impl Backend {
    /// Starts llama.cpp at the first call; later calls return the same.
    ///
    /// # Errors
    /// When no device at all is there, not even the processor.
    pub fn start() -> Result<&'static Backend, LlamaError> {
        Self::start_with(true)
    }

    /// As [`Backend::start`], and where llama.cpp was not started before, the drivers of GPUs are left alone: they
    /// are neither loaded nor asked what there is.
    ///
    /// # Errors
    /// As [`Backend::start`].
    pub fn start_without_gpus() -> Result<&'static Backend, LlamaError> {
        Self::start_with(false)
    }

    /// llama.cpp, if it was started.
    pub fn started() -> Option<&'static Backend> {
        BACKEND.get()
    }

    /// Whether llama.cpp was started and has found a GPU, so that its driver is part of the process.
    pub fn has_gpu_driver() -> bool {
        BACKEND.get().is_some_and(|backend| backend.devices().iter().any(Device::is_gpu))
    }

    fn start_with(gpus: bool) -> Result<&'static Backend, LlamaError> {
        BACKEND.get_or_try_init(|| {
            if !gpus {
                set_unset_variable("GGML_DISABLE_VULKAN", "1");
            }
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

    /// The names of what can compute here, such as `Vulkan` and `CPU`, in llama.cpp's order.
    pub fn names(&self) -> Vec<String> {
        // SAFETY: no preconditions.
        let count = unsafe { ffi::ggml_backend_reg_count() };
        // SAFETY: `index` is below the count; what is registered lives until the process ends, and so does its name.
        (0..count)
            .map(|at| unsafe { text(ffi::ggml_backend_reg_name(ffi::ggml_backend_reg_get(at))) })
            .collect()
    }

    /// All devices, in llama.cpp's order.
    pub fn devices(&self) -> Vec<Device> {
        // SAFETY: no preconditions.
        let count = unsafe { ffi::ggml_backend_dev_count() };
        // SAFETY: `index` is below the count, and registered devices live until the process ends.
        (0..count).map(|index| unsafe { Device::read(ffi::ggml_backend_dev_get(index)) }).collect()
    }

    /// Adds the devices of the RPC server at `endpoint` (`host:port`, where the host is a name or an IPv4 address); once,
    /// however often it is asked for. To be called before a model is loaded, and before other threads list devices.
    ///
    /// A server that is not there ends the process: only for one that was seen to answer, in a supervised child.
    ///
    /// # Errors
    /// When this llama.cpp has no RPC backend, or the server has no devices.
    pub fn add_rpc_server(&self, endpoint: &str) -> Result<(), LlamaError> {
        rpc::add(endpoint)
    }

    /// The RPC servers whose devices were added.
    pub fn rpc_servers(&self) -> Vec<String> {
        rpc::servers()
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

    /// The kinds of memory that tensors can be put into: each device's own, and those of the processor that a device
    /// reaches fast.
    pub fn buffer_types(&self) -> Vec<BufferType> {
        prepare_devices(None);
        let mut all: Vec<BufferType> = Vec::new();
        let devices = self.devices();
        let own = devices.iter().map(Device::buffer_type);
        // SAFETY: devices live until the process ends; NULL is what those without such memory give.
        let host = devices.iter().map(|device| unsafe { ffi::ggml_backend_dev_host_buffer_type(device.raw) });
        for raw in own.map(|memory| memory.raw).chain(host).filter(|raw| !raw.is_null()) {
            // SAFETY: checked not to be NULL, and as above.
            let name = unsafe { text(ffi::ggml_backend_buft_name(raw)) };
            if all.iter().all(|memory| memory.name != name) {
                all.push(BufferType { raw, name });
            }
        }
        all
    }

    /// Spreads threads and memory over the nodes of the machine. To be called before a model is loaded.
    pub fn spread(&self, numa: Numa) {
        let strategy = match numa {
            Numa::Distribute => ffi::GGML_NUMA_STRATEGY_DISTRIBUTE,
            Numa::Isolate => ffi::GGML_NUMA_STRATEGY_ISOLATE,
            Numa::Numactl => ffi::GGML_NUMA_STRATEGY_NUMACTL,
        };
        // SAFETY: no preconditions.
        unsafe { ffi::llama_numa_init(strategy) }
    }

    /// Variables of the environment that were set for the devices in use, as `NAME=VALUE`.
    pub fn variables(&self) -> Vec<String> {
        VARIABLES.lock().map(|variables| variables.clone()).unwrap_or_default()
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
    pub(super) unsafe fn read(raw: ffi::ggml_backend_dev_t) -> Device {
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

    /// Whether it computes layers of a model by itself: a graphics unit, or a driver that stands in for one.
    pub fn is_gpu(&self) -> bool {
        matches!(self.kind, DeviceKind::Gpu | DeviceKind::IntegratedGpu)
    }

    /// Whether it is a driver that computes on the processor what a GPU would. ggml calls it a GPU.
    pub fn is_software(&self) -> bool {
        let names = ["llvmpipe", "lavapipe", "swiftshader"];
        let description = self.description.to_lowercase();
        self.is_gpu() && names.iter().any(|name| description.contains(name))
    }

    /// Whether it is a device of an RPC server. ggml calls each of them a GPU, whatever it is.
    pub fn is_remote(&self) -> bool {
        // SAFETY: registered devices live until the process ends, and so do their registries and the names of those.
        let registry = unsafe { ffi::ggml_backend_dev_backend_reg(self.raw) };
        // SAFETY: as above, and checked not to be NULL.
        !registry.is_null() && unsafe { text(ffi::ggml_backend_reg_name(registry)) } == "RPC"
    }

    /// Its own memory.
    pub fn buffer_type(&self) -> BufferType {
        prepare_devices(Some(std::slice::from_ref(self)));
        // SAFETY: devices live until the process ends, and each has a kind of memory with a name.
        unsafe {
            let raw = ffi::ggml_backend_dev_buffer_type(self.raw);
            BufferType { raw, name: text(ffi::ggml_backend_buft_name(raw)) }
        }
    }
}

/// Sets what the devices of a model (`None`: all) need before they are used for the first time.
///
/// A software driver of Vulkan has been seen to crash on the half-precision kernels for more than 64 rows: on such a
/// device, ggml is told to do without. It reads the variable when it first uses a device.
pub(super) fn prepare_devices(devices: Option<&[Device]>) {
    let is_software = match devices {
        Some(devices) => devices.iter().any(Device::is_software),
        None => BACKEND.get().is_some_and(|backend| backend.devices().iter().any(Device::is_software)),
    };
    if is_software
        && set_unset_variable("GGML_VK_DISABLE_F16", "1")
        && let Ok(mut variables) = VARIABLES.lock()
    {
        variables.push("GGML_VK_DISABLE_F16=1".to_owned());
    }
}

/// Notes that a model is being loaded, for as long as it lives.
pub(super) struct Loading(());

impl Loading {
    /// Notes that `path` is being loaded.
    pub(super) fn begin(path: &Path) -> Loading {
        Self::note(Some(path.to_owned()));
        Loading(())
    }

    fn note(path: Option<PathBuf>) {
        if let Ok(mut loading) = LOADING.lock() {
            *loading = path;
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        Self::note(None);
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

/// Exit codes of a process that llama.cpp ends: while running, and on a file that it does not take.
const FAILED: libc::c_int = 1;
const UNUSABLE: libc::c_int = 3;

/// A failed assertion in ggml ends the process whatever this returns; so it ends here, with one line instead of a core
/// dump. Nothing half-written is lost by it: files appear under their names only when they are whole. While a model
/// loads, what an assertion does not hold of is the file.
unsafe extern "C" fn on_abort(message: *const c_char) {
    // SAFETY: ggml hands over a NUL-terminated string.
    let message = unsafe { text(message) };
    let message = message.trim().replace('\n', " ");
    // Not waited for: the thread that holds the lock may be the one that ends here.
    let file = LOADING.try_lock().ok().and_then(|loading| loading.clone());
    let (code, line) = match (rpc::lost(&message), file) {
        (Some(line), _) => (FAILED, line),
        (None, Some(file)) => {
            (UNUSABLE, format!("{}: llama.cpp gave up while it loaded the model: {message}", file.display()))
        }
        (None, None) => (FAILED, format!("llama.cpp gave up: {message}")),
    };
    let _ = std::io::stderr().write_all(format!("moeslice: error: {line}\n").as_bytes());
    // SAFETY: ends the process at once, without running destructors of a library in an undefined state.
    unsafe { libc::_exit(code) }
}
