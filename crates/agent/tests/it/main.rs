//! The agent behind a real registry, in process.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod house;
mod mcp;
mod offline;
mod reach;
mod real_servers;
mod turns;
