//! The devices of a server, and how they are told what happens in its sessions.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod push;
