//! The server from outside, in one process: every dialect and every door. One program for all
//! of these tests: what they share is compiled and linked once.

mod authority;
mod bernstein;
mod bernstein_http;
mod cancel;
mod extensions;
mod ferret;
mod folders;
mod frames;
mod handshake;
mod history;
mod host;
mod http_acp;
mod http_metrics;
mod http_pages;
mod http_zeph;
mod lifecycle;
mod otter;
mod pages;
mod permissions;
mod prompts;
mod questions;
mod reconnect;
mod rest;
mod secrets;
mod session_size_limits;
mod settings;
mod slow_readers;
mod spans;
mod stalled_client;
mod streaming;
mod websocket;
