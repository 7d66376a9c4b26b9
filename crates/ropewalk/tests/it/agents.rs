//! External agents behind the real binary.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod choice;
mod death;
mod journal;
mod listing;
mod misbehaviour;
mod turns;
mod world;
