//! The page of `report` in a real browser: Debian's chromium, without a window.

mod browser;
mod page;
mod sample;
