//! Our own clients' dialect, from both ends: a line in process and a socket over HTTP.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod faults;
mod hostile;
mod long;
mod page;
mod places;
mod returning;
mod roles;
mod sessions;
