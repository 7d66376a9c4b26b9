//! The REST surface, through the gate, against whole servers in one process.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod door;
mod events;
mod page;
mod permissions;
mod power;
mod readers;
mod rest_of_it;
mod sessions;
mod strangers;
mod zeph;
