//! Observers of the running graph, and the callback through which llama.cpp shows it.

use super::backend::text;
use super::error::ObserveError;
use super::ffi;
use super::node::Node;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Nodes of the graph, and texts that were tokenized, that have gone by in this process.
static ACTIVITY: AtomicU64 = AtomicU64::new(0);

/// A number that grows while llama.cpp computes or tokenizes, in whatever context: as long as it does, nothing hangs.
pub fn activity() -> u64 {
    ACTIVITY.load(Ordering::Relaxed)
}

/// Says that llama.cpp has come further.
pub(super) fn went_on() {
    ACTIVITY.fetch_add(1, Ordering::Relaxed);
}

/// Something that watches, or changes, the graph while it is computed.
///
/// llama.cpp asks for each node in the order of computation; a node that is wanted is computed together with all before
/// it, and then shown. Each wanted node costs a synchronisation with the device.
pub trait Observer {
    /// Whether [`Observer::observe`] is to be called once this node is computed. The node holds no data yet.
    fn wants(&mut self, node: &Node<'_>) -> bool;

    /// Reads or writes a node that was wanted and is now computed.
    ///
    /// # Errors
    /// Ends the pass: nothing is observed any more, and the decode that was running returns the error.
    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError>;

    /// Whether nothing that follows in the graph matters any more, asked after each node that was shown. The rest of
    /// the graph is then left out, and what the pass leaves behind (logits, embeddings) is not to be looked at.
    fn is_done(&self) -> bool {
        false
    }
}

/// Several observers on one pass, shown each node in the order given.
pub struct Observers<'o>(Vec<(&'o mut dyn Observer, bool)>);

impl<'o> Observers<'o> {
    /// Joins `observers`.
    pub fn new(observers: impl IntoIterator<Item = &'o mut dyn Observer>) -> Self {
        Observers(observers.into_iter().map(|observer| (observer, false)).collect())
    }
}

impl Observer for Observers<'_> {
    fn wants(&mut self, node: &Node<'_>) -> bool {
        let mut any = false;
        for (observer, wanted) in &mut self.0 {
            *wanted = observer.wants(node);
            any |= *wanted;
        }
        any
    }

    fn observe(&mut self, node: &mut Node<'_>) -> Result<(), ObserveError> {
        self.0.iter_mut().filter(|(_, wanted)| *wanted).try_for_each(|(observer, _)| observer.observe(node))
    }

    fn is_done(&self) -> bool {
        self.0.iter().all(|(observer, _)| observer.is_done())
    }
}

/// What the callback of a context points to. An observer is in it only while a decode runs.
#[derive(Default)]
pub(super) struct Watch {
    observer: Option<*mut dyn Observer>,
    error: Option<ObserveError>,
    /// Matrices multiplied into each kind of memory.
    multiplied: Vec<(ffi::ggml_backend_buffer_type_t, u64)>,
}

impl Watch {
    /// Sets the observer for one decode.
    ///
    /// # Safety
    /// `observer` must stay alive, and be used by nobody else, until [`Watch::end`].
    pub(super) unsafe fn begin(&mut self, observer: &mut (dyn Observer + '_)) {
        let observer: *mut (dyn Observer + '_) = observer;
        // SAFETY: only the lifetime in the type changes; the caller vouches for the actual one.
        self.observer = Some(unsafe {
            std::mem::transmute::<*mut (dyn Observer + '_), *mut (dyn Observer + 'static)>(observer)
        });
        self.error = None;
    }

    /// Notes where a node is computed that is about to be.
    ///
    /// # Safety
    /// `raw` must be a node of a graph that is alive.
    unsafe fn note(&mut self, raw: *const ffi::ggml_tensor) {
        // SAFETY: by this function's contract.
        let node = unsafe { &*raw };
        if !matches!(node.op, ffi::GGML_OP_MUL_MAT | ffi::GGML_OP_MUL_MAT_ID) || node.buffer.is_null() {
            return;
        }
        // SAFETY: a live buffer.
        let memory = unsafe { ffi::ggml_backend_buffer_get_type(node.buffer) };
        match self.multiplied.iter_mut().find(|(known, _)| *known == memory) {
            Some((_, count)) => *count += 1,
            None => self.multiplied.push((memory, 1)),
        }
    }

    /// The devices that computed, by what they have multiplied.
    pub(super) fn devices(&self) -> Vec<String> {
        let mut devices: Vec<(String, u64)> = Vec::new();
        for &(memory, count) in &self.multiplied {
            // SAFETY: kinds of memory live until the process ends; those of the processor may have no device.
            let name = unsafe {
                let device = ffi::ggml_backend_buft_get_device(memory);
                // The processor computes in memory that a device reaches fast.
                let host = !device.is_null() && ffi::ggml_backend_dev_host_buffer_type(device) == memory;
                if device.is_null() || host {
                    "CPU".to_owned()
                } else {
                    text(ffi::ggml_backend_dev_name(device))
                }
            };
            match devices.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += count,
                None => devices.push((name, count)),
            }
        }
        devices.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        devices.into_iter().map(|(name, _)| name).collect()
    }

    /// Takes the observer away; returns what went wrong in it.
    pub(super) fn end(&mut self) -> Option<ObserveError> {
        self.observer = None;
        self.error.take()
    }
}

/// llama.cpp's eval callback: `ask` before a node is computed, then once more when it was wanted.
///
/// Returning false from the second call ends the current split of the graph and lets the following ones run on stale
/// data. That is right when nothing of them is looked at any more; an error, though, is kept for the end of the decode,
/// and nothing is wanted any more.
pub(super) unsafe extern "C" fn on_node(
    raw: *mut ffi::ggml_tensor,
    ask: bool,
    user_data: *mut c_void,
) -> bool {
    // SAFETY: the context hands over its `Watch`, which outlives it, and calls from the thread that decodes.
    let watch = unsafe { &mut *user_data.cast::<Watch>() };
    went_on();
    if ask {
        // SAFETY: llama.cpp shows nodes of the graph that it computes.
        unsafe { watch.note(raw) };
    }
    let Some(observer) = watch.observer.filter(|_| watch.error.is_none()) else { return !ask };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by the contract of `begin`, and since llama.cpp makes one call at a time.
        let observer = unsafe { &mut *observer };
        // SAFETY: the graph is alive, and waits for this callback.
        let mut node = unsafe { Node::new(raw) };
        if ask {
            Ok(observer.wants(&node))
        } else {
            observer.observe(&mut node).map(|()| !observer.is_done())
        }
    }));
    match outcome {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            watch.error = Some(error);
            !ask
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            watch.error = Some(ObserveError::Panicked(text));
            !ask
        }
    }
}
