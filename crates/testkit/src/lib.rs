//! What tests share: scripted peers, fixtures and conformance suites. Never part of the product.

mod script;
pub mod store_suite;

pub use script::{Line, Script, call, fail, say, think};
