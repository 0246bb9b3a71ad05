//! Cutting models, on small random ones that are made for the purpose.
#![allow(missing_docs)]

mod oracle;
mod prune;
mod sample;
