//! Our own clients' dialect, from both ends: a line in process and a socket over HTTP.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod faults;
mod invalid_requests;
mod long_sessions;
mod page;
mod reconnect;
mod roles;
mod session_requests;
mod sessions;
