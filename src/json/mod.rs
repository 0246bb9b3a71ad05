//! JSON as our files have it: how it is printed, objects with unique keys, any value in its order, and what
//! others write in place of JSON.

pub(crate) mod lenient;
mod ordered;
mod pretty;
#[cfg(test)]
mod schemas;
pub(crate) mod unique_keys;

pub(crate) use ordered::Json;
pub(crate) use pretty::to_text;
