//! The guard from outside: what it says of commands that people and agents type.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod launchers;
mod paths;
mod reading;
mod scope;
mod server;
mod shells;
mod table;
mod tables;
mod traced;
