//! The documents that Ropewalk was built from, executed: one file for each, every command, frame, header, endpoint and
//! number in the document's own order, with the program's name as the only change. Where Ropewalk differs on purpose, the
//! difference is a test in that file whose name begins with `differs_`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod eventlog;
mod otter;
mod program;
