//! The guard from outside: what it says of commands that people and agents type.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod table;
mod tables;
