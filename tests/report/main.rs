//! Pages in a real browser: Debian's chromium, without a window.

mod browser;
mod page;
#[cfg(feature = "llama")]
mod pages;
mod sample;
