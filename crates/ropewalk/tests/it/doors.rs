//! The real binary with its HTTP door open.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod attacks;
pub mod clients;
mod consent;
mod five_clients;
mod gate;
mod http;
mod people;
mod push;
mod same_log;
pub mod web;
