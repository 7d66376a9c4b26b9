//! Shared test code: scripted peers, fixtures and conformance suites. Never part of the product.

pub mod app_client;
mod function_turns;
pub mod http_client;
mod long_session;
pub mod mock_provider;
pub mod nats;
pub mod postgres;
pub mod push_service;
pub mod router_requests;
mod scripted_model;
pub mod server;
pub mod store_suite;
mod third_party_server;

pub use function_turns::Turns;
pub use long_session::long_log;
pub use scripted_model::{Line, Script, call, fail, say, think};
