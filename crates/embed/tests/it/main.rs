//! Tests of an embedded server. One binary: the tests share their setup.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client_offers;
mod connections;
mod example;
mod http;
mod options;
mod sessions;
mod test_server;
