//! What tests share: scripted peers, fixtures and conformance suites. Development only.

pub mod store_suite;
