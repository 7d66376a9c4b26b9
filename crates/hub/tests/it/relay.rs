//! A hub between scripted bridges, machines and browsers.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests say what they expect by failing")]

mod attacks;
mod branches;
mod calls;
mod database_away;
mod frames;
mod mirror;
mod polls;
mod test_cluster;
mod visibility;
