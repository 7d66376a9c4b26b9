//! What tests share: scripted peers, fixtures and conformance suites. Never part of the product.

pub mod app_client;
mod child;
mod long;
pub mod nats;
pub mod postgres;
pub mod provider;
pub mod push;
pub mod router;
mod script;
pub mod server;
pub mod store_suite;
mod turns;
pub mod web;

pub use long::long_log;
pub use script::{Line, Script, call, fail, say, think};
pub use turns::Turns;
