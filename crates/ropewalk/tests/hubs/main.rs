//! Real hubs, a real machine behind a proxy, and browsers that come back: whatever is cut, stalled, killed or stopped,
//! everybody ends with the same log.
//!
//! `FAULTS=200 cargo nextest run -p ropewalk --test hubs faults` is the long form (`cargo xtask faults`).
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod browser;
mod faults;
mod front;
mod one;
mod processes;
mod several;
mod world;
