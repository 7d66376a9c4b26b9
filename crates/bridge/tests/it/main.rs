//! The bridge against scripted receivers: what it says, what it takes, and what it never does.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod branches;
mod hostile;
mod local;
mod machine;
mod mirror;
mod plain;
mod polls;
mod sealed;
mod test_bridge;
mod test_receiver;
