//! Integration tests of the guard: how it assesses commands that people and agents type.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod launchers;
mod parser;
mod paths;
mod scope;
mod server;
mod shells;
mod table;
mod tables;
mod traced;
