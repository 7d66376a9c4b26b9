//! Shared test code: scripted peers, fixtures and conformance suites. Never part of the product.

pub mod app_client;
mod child;
pub mod http_client;
mod long_session;
pub mod nats;
pub mod postgres;
pub mod provider;
pub mod push;
pub mod router;
mod script;
pub mod server;
pub mod store_suite;
mod turns;

pub use long_session::long_log;
pub use script::{Line, Script, call, fail, say, think};
pub use turns::Turns;
