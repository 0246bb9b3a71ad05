//! Cutting models, on small random ones that are made for the purpose.
#![allow(missing_docs)]

mod child;
mod faults;
mod kill;
mod large;
mod many;
mod oracle;
mod properties;
mod prune;
#[path = "../support/random.rs"]
#[allow(dead_code)] // shared with other binaries
mod random;
mod sample;
mod shards;
mod tables;
mod verify;
mod written;
