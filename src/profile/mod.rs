//! From texts and a model to the usage of its experts.

#[cfg(feature = "llama")]
mod counting;
#[cfg(feature = "llama")]
mod error;
#[cfg_attr(not(feature = "llama"), allow(dead_code))]
mod halves;
#[cfg(feature = "llama")]
mod mtp_pass;
#[cfg(feature = "llama")]
mod norm_rows;
#[cfg(feature = "llama")]
mod norms;
#[cfg(feature = "llama")]
mod outline;
#[cfg(feature = "llama")]
mod pass;
#[cfg(feature = "llama")]
mod profiled;
#[cfg(feature = "llama")]
mod routing;
#[cfg(feature = "llama")]
mod sampler;
#[cfg(feature = "llama")]
mod share;
mod tally;
#[cfg(feature = "llama")]
mod trace_pass;
#[cfg(feature = "llama")]
mod trace_recorder;

#[cfg(feature = "llama")]
pub use error::ProfileError;
#[cfg(feature = "llama")]
pub use norms::NormsObserver;
#[cfg(feature = "llama")]
pub use outline::{Outline, OutlineCorpus, outline};
#[cfg(feature = "llama")]
pub use pass::{ProfileOptions, profile, profile_contexts};
#[cfg(feature = "llama")]
pub use profiled::{Circumstances, Profile};
#[cfg(feature = "llama")]
pub use routing::{RoutingObserver, Ubatches};
#[cfg(feature = "llama")]
pub use sampler::Generation;
#[cfg(feature = "llama")]
pub use share::Share;
pub use tally::{BadSelection, LayerShape, Tally, TallyError};
#[cfg(feature = "llama")]
pub use trace_pass::{RecordError, Recorded, TraceOptions, TraceTarget, record, trace_contexts};
#[cfg(feature = "llama")]
pub use trace_recorder::TraceRecorder;
