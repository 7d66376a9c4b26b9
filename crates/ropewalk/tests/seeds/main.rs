//! The documents that Ropewalk was built from, executed: one file for each, every command, frame, header, endpoint and
//! number in the document's own order, with the program's name as the only change. Where Ropewalk differs on purpose, the
//! difference is a test in that file whose name begins with `differs_`.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bernstein;
mod bridge;
mod bridge_process;
#[path = "../ended/mod.rs"]
mod ended;
mod eventlog;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../doors/ways/events.rs"]
mod events;
mod ferret;
mod otter;
mod program;
mod receiver;
mod settings;
#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../doors/web.rs"]
mod web;
mod zeph;
