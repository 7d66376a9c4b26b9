//! What tests share: scripted peers, fixtures and conformance suites. Never part of the product.

pub mod store_suite;
mod script;

pub use script::{Line, Script};
