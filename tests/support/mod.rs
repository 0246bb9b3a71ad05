//! What several test binaries share: tiny models of random weights, made through llama.cpp's own API, and child
//! processes in which llama.cpp may end the process.
#![allow(dead_code)]

pub mod isolated;
pub mod observed;
pub mod random;
pub mod recipe;
pub mod tiny;
