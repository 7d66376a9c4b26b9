//! The real binary with its HTTP door open. One program for all of these tests: what they share is
//! compiled and linked once.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod attacks;
mod consent;
#[path = "../ended/mod.rs"]
mod ended;
mod five;
mod gate;
mod http;
mod people;
mod push;
mod same_log;
mod ways;
mod web;
