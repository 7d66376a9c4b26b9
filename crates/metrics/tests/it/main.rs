//! The counters from outside: at the doors, along the logs, around a store.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod metrics;
