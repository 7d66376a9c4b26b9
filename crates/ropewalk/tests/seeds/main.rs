//! The documents that Ropewalk was built from, executed: one file for each, every command, frame, header, endpoint and
//! number in the document's own order, with the program's name as the only change. Where Ropewalk differs on purpose, the
//! difference is a test in that file whose name begins with `differs_`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bridge;
#[path = "../ended/mod.rs"]
#[expect(dead_code, reason = "shared with tests that use the rest of it")]
mod ended;
mod otter;
mod program;
mod receiver;
mod settings;
#[path = "../doors/web.rs"]
#[expect(dead_code, clippy::expect_used, reason = "shared with tests that use the rest of it")]
mod web;
mod zeph;
