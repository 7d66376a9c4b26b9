//! The terminal client of the real binary: in a `tmux` terminal, and line by line.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod lines;
mod screen;
mod shared;
mod world;
