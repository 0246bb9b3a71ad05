//! Machines with several nodes of memory.

/// How threads and memory are spread over the nodes of a machine with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// Evenly over all nodes.
    Distribute,
    /// On the node where the program started.
    Isolate,
    /// As `numactl` was told.
    Numactl,
}
