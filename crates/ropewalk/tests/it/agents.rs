//! Agents that are other programs, behind the real binary.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod choice;
mod death;
mod journal;
mod odd;
mod shown;
mod turns;
mod world;
