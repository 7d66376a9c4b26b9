//! What a program that embeds a server can rely on. One binary: the tests share their world.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client_offers;
mod connections;
mod example;
mod http;
mod knobs;
mod sessions;
mod world;
