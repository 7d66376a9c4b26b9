//! The REST surface, through the gate, against whole servers in one process.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access_rules;
pub mod door;
mod events;
mod openapi;
mod other_routes;
mod page;
mod permissions;
mod power;
mod readers;
mod sessions;
mod zeph;
