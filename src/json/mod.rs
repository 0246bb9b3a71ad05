//! JSON as our files have it: how it is printed, objects with unique keys, and documents with a schema.

mod document;
mod pretty;
pub(crate) mod unique_keys;

pub use document::DocumentError;
pub(crate) use document::{Format, without_mark};
pub(crate) use pretty::to_text;
