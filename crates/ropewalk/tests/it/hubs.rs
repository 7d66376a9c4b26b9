//! Real hubs, a real machine behind a proxy, and browsers that reconnect: whatever is cut, stalled, killed or stopped, all end
//! with the same log.
//!
//! `FAULTS=200 cargo nextest run -p ropewalk --test it hubs::faults` is the long form (`cargo xtask faults`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the programs under test are started as people start them")]

mod address;
mod browser;
mod faults;
mod load_balancer;
mod multiple_hubs;
mod processes;
mod restored_machine;
mod single_hub;
mod tls;
mod world;
