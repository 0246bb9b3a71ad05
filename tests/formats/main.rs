//! What the fuzz targets do with arbitrary bytes, in an ordinary test run: on their seeds, and on damaged ones.

mod damaged;
mod seeds;
