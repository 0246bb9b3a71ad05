//! What the fuzz targets do with arbitrary bytes, in an ordinary test run: on their seeds, and on damaged ones; and the files of earlier versions.

mod damaged;
mod golden;
mod routers;
mod seeds;
