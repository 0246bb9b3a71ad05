//! Pages: what a usage, a measurement or a replay says, each as one file without a network, for people and, by the
//! JSON in it, for programs.
//!
//! Tables stand in the markup; the script draws figures from the embedded document and needs nothing else. A strict
//! Content-Security-Policy lets nothing run or load but that one script and style, which it names by their hashes.

mod escape;
mod evaluation;
mod frame;
mod markup;
mod origin;
mod quality;
mod replay;
mod usage;

pub use evaluation::EvaluationPage;
pub use frame::DATA_ID;
pub use quality::telling_row;
pub use replay::ReplayPage;
pub use usage::UsagePage;
