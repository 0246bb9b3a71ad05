//! Never compiled; see `Cargo.toml` beside it.
