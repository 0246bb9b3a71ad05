//! A device that fails on command, for the tests.

use super::backend::{Backend, Device};
use super::context::Context;
use super::ffi;

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Computing a graph.
    Compute,
    /// Waiting until everything is computed.
    Synchronize,
    /// Reading a tensor.
    Read,
    /// Writing a tensor.
    Write,
    /// Clearing the memory of keys and values.
    Clear,
}

impl Backend {
    /// A device that computes on the processor and fails on command.
    pub fn faulty_device(&self) -> Device {
        // SAFETY: the device is made once and lives until the process ends.
        unsafe { Device::read(ffi::moeslice_faulty_device()) }
    }
}

/// From now on the calls in `faults` throw on the faulty device, and no others.
pub fn arm(faults: &[Fault]) {
    let bits = faults.iter().map(|fault| match fault {
        Fault::Compute => ffi::MOESLICE_FAULT_COMPUTE,
        Fault::Synchronize => ffi::MOESLICE_FAULT_SYNCHRONIZE,
        Fault::Read => ffi::MOESLICE_FAULT_READ,
        Fault::Write => ffi::MOESLICE_FAULT_WRITE,
        Fault::Clear => ffi::MOESLICE_FAULT_CLEAR,
    });
    let bits = bits.fold(0, |all, bit| all | bit as i32);
    // SAFETY: stores a number.
    unsafe { ffi::moeslice_faulty_arm(bits) }
}

impl Context<'_> {
    /// Bytes of the buffer in which llama.cpp keeps the outputs of batches.
    pub fn output_bytes(&self) -> u64 {
        // SAFETY: the context is alive.
        unsafe { ffi::moeslice_output_bytes(self.raw.as_ptr()) as u64 }
    }
}
