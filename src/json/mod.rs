//! JSON as our files have it: how it is printed, objects with unique keys, any value in its order, and what
//! others write in place of JSON.

mod document;
pub(crate) mod lenient;
mod ordered;
mod pretty;
pub(crate) mod unique_keys;

pub use document::DocumentError;
pub(crate) use document::{Format, without_mark};
pub(crate) use ordered::Json;
pub(crate) use pretty::to_text;
