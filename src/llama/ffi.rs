//! The raw bindings, as bindgen writes them.
#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code, missing_docs, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
