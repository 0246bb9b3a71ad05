//! Recorded routing replayed through caches of experts: what a cache of a size and policy would have had to fetch.

mod advise;
mod choose;
mod config;
mod counts;
mod curve;
mod engine;
mod guard;
mod prefetch;
mod result;
mod simulation;
mod steps;

pub use advise::{Advice, AdviceRow, Choice, advise};
pub use choose::{CacheAware, DeltaReading};
pub use config::{Capacity, PrefetchPlace, PrefetchPlan, ReplayError, ReplayOptions, RunSpec, TransferModel};
pub use counts::{Counts, PrefetchCounts};
pub use curve::{CurvePoint, CurveResult, LruCurve};
pub use engine::replay;
pub use guard::{Guard, working_set};
pub use result::{CacheAwareResult, PartResult, PrefetchResult, Replay, RunResult};
pub use simulation::Simulation;
pub use steps::{Chunk, Steps};

#[cfg(test)]
mod tests;
