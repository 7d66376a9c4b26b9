//! Real hubs, a real machine behind a proxy, and browsers that come back: whatever is cut, stalled, killed or stopped,
//! everybody ends with the same log.
//!
//! `FAULTS=200 cargo nextest run -p ropewalk --test it hubs::faults` is the long form (`cargo xtask faults`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the programs under test are started as people start them")]

mod browser;
mod faults;
mod front;
mod one;
mod place;
mod processes;
mod put_back;
mod secure;
mod several;
mod world;
