//! Agents that are other programs, behind the real binary.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../ended/mod.rs"]
mod ended;
mod choice;
mod death;
mod shown;
mod turns;
mod world;
