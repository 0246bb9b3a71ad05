//! JSON as our files have it: how it is printed, objects with unique keys, and documents with a schema.

mod pretty;
pub(crate) mod unique_keys;

pub(crate) use pretty::to_text;
