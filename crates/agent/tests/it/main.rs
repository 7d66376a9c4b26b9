//! The agent behind a real registry, in process.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod commands;
mod files;
mod harness;
mod knowledge;
mod long;
mod mcp;
mod models;
mod offline;
mod providers;
mod reach;
mod real_servers;
mod review;
mod shell;
mod trajectories;
mod turns;
mod undo;
mod web;
